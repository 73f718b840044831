//! Processes that compete for sets of locks, and for the permits of a semaphore.

use crate::contest::{Shape, turns};
use crate::queue::Want;
use crate::report::Goal::AtLeast;
use crate::report::Report;
use crate::samples::number;
use crate::setting::Setting;

fn lock(name: &str) -> Want {
    Want::Lock(name.to_owned())
}

fn set(names: [&str; 2]) -> Want {
    Want::Set(names.map(str::to_owned).into())
}

pub(crate) async fn sets(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let ab = || set(["a", "b"]);
    let chain = vec![ab(), set(["b", "c"]), set(["a", "c"])];
    for (name, wants, rate, unfairness) in [
        ("sets {a,b}, 4 x 4", vec![ab(); 4], 0.92, 1.5),
        ("sets {a,b}, {b,c}, {a,c}, 4 x 3", chain, 1.5, 2.4),
    ] {
        let mut shape = Shape::alike(name, 4, wants, setting);
        (shape.rate, shape.unfairness) = (Some(rate), Some(unfairness));
        shape.measure("holds", setting, report).await?;
    }
    let name = "{a,b}, a, b, {a,b}, 4 x 4";
    let mut shape = Shape::alike(name, 4, vec![ab(); 4], setting);
    shape.processes[1].2 = vec![lock("a"); 4];
    shape.processes[2].2 = vec![lock("b"); 4];
    (shape.rate, shape.unfairness) = (Some(0.92), Some(1.8));
    let outcomes = shape.measure("holds", setting, report).await?;
    let of_sets = turns(&outcomes, |run| {
        let of_sets = shape.part(run, |want| matches!(want, Want::Set(_)));
        number(of_sets.sections.len()) / number(run.sections.len())
    });
    report.figure("the sets' part of the holds", of_sets, "x", AtLeast(0.45));
    Ok(())
}

pub(crate) async fn permits(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (name, permits, processes, tasks, rate, unfairness) in [
        ("1 permit, 4 x 4", 1, 4, 4, 1.3, Some(1.5)),
        ("3 permits, 4 x 4", 3, 4, 4, 1.5, Some(3.0)),
        ("3 permits, 8 x 2", 3, 8, 2, 1.4, Some(3.5)),
        ("50 permits, 4 x 50", 50, 4, 50, 1.0, None),
    ] {
        let wants = vec![Want::Permit(name.to_owned(), permits); tasks];
        let mut shape = Shape::alike(name, processes, wants, setting);
        (shape.rate, shape.unfairness) = (Some(rate), unfairness);
        shape.measure("holds", setting, report).await?;
    }
    Ok(())
}
