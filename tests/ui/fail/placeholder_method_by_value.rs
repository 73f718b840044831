use mongolock::{LockError, distributed_lock};

struct Job {
    id: u64,
}

impl Job {
    fn finish(self) -> u64 {
        self.id
    }

    fn next(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    #[distributed_lock(name = "job:<self.next()>")]
    async fn changes_itself(&mut self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(name = "job:<job.finish()>")]
async fn destroys(job: Job) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<jobs.0.finish()>")]
async fn destroys_a_field(jobs: (Job, Job)) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<job.next()>")]
async fn changes(mut job: Job) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
