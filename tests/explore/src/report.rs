use crate::cases::Case;
use crate::search::{self, Found};
pub(crate) fn report(case: &Case, found: &Found) {
    println!("{:<50} {}{:>10} {:>10} {:>7} free {:>8.1?} given up {:>8.1?} {:>6.1} s", case.name, if found.is_whole {"all "} else {"    "}, found.states, found.transitions, found.ends, found.longest.free, found.longest.given_up, found.seconds);
    if let Some((breach, steps)) = &found.breach {
        println!("   {breach} after {} steps", steps.len());
        if std::env::var_os("SHOW").is_some() {
        for line in search::told(&case.setup, steps).iter().rev().take(60).rev() { println!("{line}"); } }
    }
}
