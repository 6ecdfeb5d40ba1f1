//! Large files, to which a save appends what has changed.

use super::*;
use proptest::prelude::*;
use std::os::unix::fs::MetadataExt as _;

/// A limiter whose file is large, so that lines are appended to it. Ids are long, so that few agents take many bytes.
fn start_large(path: &Path) -> (Limiter, BudgetsLoaded) {
    let lanes = [("llm", "budget 1_000/day"), ("images", "budget 1_000/month"), ("http", "10/min")];
    let wall = ManualWallClock::new(MORNING);
    let limiter = builder(&lanes).agents(500).wall_clock(wall).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("a valid file");
    (limiter, loaded)
}

fn long_id(number: u64) -> String {
    format!("{number:0256}")
}

/// Makes the file large.
fn fill(limiter: &Limiter) {
    (0..LARGE).for_each(|number| spend(limiter, long_id(number), LLM, 1));
    limiter.save_budgets().expect("there is room");
}

const LARGE: u64 = 250;

/// Every save wrote every budget: 111 MB for one check among a million agents.
#[test]
fn a_save_writes_only_what_has_changed() {
    let (_directory, path) = file();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    let look = || fs::metadata(&path).map(|file| (file.ino(), file.len())).unwrap();
    let (inode, bytes) = look();
    spend(&limiter, "a", LLM, 7);
    spend(&limiter, long_id(3), LaneId::new(1), 2);
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 2);
    let (same, more) = look();
    assert_eq!(same, inode, "not replaced");
    assert!((100..800).contains(&(more - bytes)), "{bytes} and then {more}");
    // What the file already contains is not written again.
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 2);
    assert_eq!(look(), (inode, more));
    limiter.refund(Request::new("a", LLM).cost(7)).unwrap();
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 1);
    drop(limiter);
    let (limiter, loaded) = start_large(&path);
    assert_eq!((loaded.loaded, loaded.ended, loaded.unknown, loaded.full), (LARGE + 1, 0, 0, 0));
    assert_eq!((used(&limiter, "a", LLM), used(&limiter, long_id(3), LaneId::new(1))), (0, 2));
    // The file does not grow without bound. The system may give the number of a file that is gone to a new one.
    let mut is_replaced = false;
    for round in 0..2_000 {
        spend(&limiter, "a", LaneId::new(1), 1);
        if round % 500 == 499 {
            limiter.reset("a").unwrap();
        }
        limiter.save_budgets().unwrap();
        assert!(look().1 <= 2 * bytes + 1_000, "{round}");
        is_replaced |= look().0 != inode;
    }
    assert!(is_replaced);
}

/// If an agent is forgotten and another takes its record, its id is gone from
/// there. It must still not come back from the file.
#[test]
fn an_agent_that_lost_its_record_between_two_saves_is_saved_as_it_is() {
    let (_directory, path) = file();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    let inode = fs::metadata(&path).unwrap().ino();
    (0..LARGE)
        .filter(|number| number % 3 == 0)
        .for_each(|number| assert_eq!(limiter.forget(&long_id(number)), Ok(true)));
    // Every record goes to another agent.
    for other in 0..2_000 {
        let _ = limiter.check(format!("other-{other}"), LaneId::new(2)).unwrap();
    }
    // Some return, perhaps to other records.
    (0..LARGE).filter(|number| number % 15 == 0).for_each(|number| spend(&limiter, long_id(number), LLM, 5));
    limiter.save_budgets().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "not replaced");
    drop(limiter);
    let (limiter, _) = start_large(&path);
    for number in 0..LARGE {
        let expected =
            [(15, 5), (3, 0), (1, 1)].into_iter().find(|(every, _)| number % every == 0).map(|(_, used)| used);
        assert_eq!(Some(used(&limiter, long_id(number), LLM)), expected, "{number}");
    }
}

/// The machine stopped in the middle of a save: what was saved before is still there.
#[test]
fn a_line_that_was_cut_short_is_ignored() {
    let (_directory, path) = file();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    spend(&limiter, "a", LLM, 7);
    limiter.save_budgets().unwrap();
    let before = fs::read(&path).unwrap().len();
    spend(&limiter, "a", LLM, 10);
    limiter.save_budgets().unwrap();
    let text = fs::read(&path).unwrap();
    drop(limiter);
    for cut in (before..text.len()).step_by(7).chain([text.len() - 1]) {
        fs::write(&path, &text[..cut]).unwrap();
        let (limiter, _) = start_large(&path);
        let kept = used(&limiter, "a", LLM);
        assert!(kept == 7 || (kept == 17 && cut + 1 == text.len()), "{kept} of the first {cut} bytes");
        // And the next save is complete.
        spend(&limiter, "b", LLM, 1);
        limiter.save_budgets().unwrap();
        drop(limiter);
        assert_eq!(used(&start_large(&path).0, "b", LLM), 1);
    }
    let edited = String::from_utf8(text).unwrap().replace("\"used\": 7}", "\"used\": 6}");
    fs::write(&path, edited).unwrap();
    let limiter = builder(&[("llm", "budget 1_000/day")]).build().unwrap();
    let error = limiter.keep_budgets_in(&path).unwrap_err();
    let expected = "the line was changed after it was written; if you edited it, remove its \"sum\"";
    assert!(error.to_string().contains(expected), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any charges, saves and restarts: what is used equals a ledger that goes
    /// back to the last save at each restart.
    #[test]
    fn a_restart_goes_back_to_the_last_save(
        acts in prop::collection::vec((0..4_usize, 1..400_u64, 0..12_u8), 1..60),
        is_large: bool,
    ) {
        let (_directory, path) = file();
        let start = |path| if is_large { start_large(path) } else { start(path, MORNING) };
        let (mut limiter, _) = start(&path);
        if is_large {
            fill(&limiter);
        }
        let (mut ledger, mut saved) = ([0; 4], [0; 4]);
        for (agent, cost, act) in acts {
            match act {
                0 => {
                    limiter.save_budgets().unwrap();
                    saved = ledger;
                }
                1 => {
                    drop(limiter);
                    limiter = start(&path).0;
                    ledger = saved;
                }
                3 => {
                    limiter.forget(&format!("{agent}")).unwrap();
                    ledger[agent] = 0;
                }
                2 => {
                    limiter.refund(Request::new(&format!("{agent}"), LLM).cost(cost)).unwrap();
                    ledger[agent] -= cost.min(ledger[agent]);
                }
                _ => {
                    let fits = ledger[agent] + cost <= 1_000;
                    prop_assert_eq!(limiter.check_request(Request::new(&format!("{agent}"), LLM).cost(cost)).unwrap().is_allowed(), fits);
                    ledger[agent] += if fits { cost } else { 0 };
                }
            }
            for (agent, expected) in ledger.iter().enumerate() {
                prop_assert_eq!(used(&limiter, format!("{agent}"), LLM), *expected);
            }
        }
    }
}
