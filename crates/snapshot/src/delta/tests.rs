use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::{
    base::{Base, Bases},
    manifest,
    opened::memory,
    pages::is_zero,
};

const NAME: &str = "pages.img";

struct Fixture {
    dir: tempfile::TempDir,
    bases: Bases,
}

impl Fixture {
    fn new(base: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("base")).unwrap();
        fs_err::write(dir.path().join("base").join(NAME), base).unwrap();
        manifest::write(&dir.path().join("base"), manifest::tests::meta()).unwrap();
        Self { dir, bases: Bases::default() }
    }

    fn base(&self) -> Base {
        self.bases.open(&self.dir.path().join("base"), NAME).unwrap()
    }

    fn file(&self, name: &str, contents: &[u8]) -> File {
        let path = self.dir.path().join(name);
        fs_err::write(&path, contents).unwrap();
        File::open(path).unwrap()
    }

    /// The delta of `contents`.
    fn delta(&self, contents: &[u8]) -> Vec<u8> {
        let file = self.file("whole", contents);
        let made = make(&file, contents.len() as u64, &self.base()).unwrap();
        let path = self.dir.path().join("delta");
        made.write(&file, &mut File::create(&path).unwrap()).unwrap();
        let delta = fs_err::read(path).unwrap();
        assert_eq!(delta.len() as u64, made.encoded_size());
        delta
    }

    fn rebuilt(&self, delta: &[u8], size: usize) -> Result<Vec<u8>, RebuildError> {
        let delta = self.file("delta", delta);
        let path = self.dir.path().join("rebuilt");
        let target = File::create(&path).unwrap();
        let base = self.base();
        rebuild(&delta, size as u64, (&base.file, base.size), &target)?;
        Ok(fs_err::read(path).unwrap())
    }

    fn plan(&self, delta: &[u8], size: usize) -> Result<Plan, PlanError> {
        Plan::read(&self.file("delta", delta), size as u64, self.base().size)
    }
}

/// A page of which each number gives another one; 0 is the zero page.
fn page(number: u8) -> Vec<u8> {
    let mut page = vec![number; PAGE];
    // Pages that differ in one byte only.
    page[usize::from(number) * 16] ^= number & 1;
    page
}

fn pages(numbers: &[u8]) -> Vec<u8> {
    numbers.iter().flat_map(|number| page(*number)).collect()
}

/// A part of a file.
#[derive(Clone, Debug)]
enum Part {
    /// Pages of the base, from one on.
    Copy(usize, usize),
    Zeros(usize),
    New(Vec<u8>),
    /// Bytes that move what follows off the pages of the base.
    Shift(usize),
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (0_usize..200, 1_usize..150).prop_map(|(from, count)| Part::Copy(from, count)),
        (1_usize..40).prop_map(Part::Zeros),
        proptest::collection::vec(any::<u8>(), 1..20).prop_map(Part::New),
        (1_usize..PAGE).prop_map(Part::Shift),
    ]
}

fn assembled(base: &[u8], parts: &[Part]) -> Vec<u8> {
    let mut file = Vec::new();
    for part in parts {
        match part {
            Part::Copy(from, count) => {
                let from = (from * PAGE).min(base.len());
                file.extend(&base[from..(from + count * PAGE).min(base.len())]);
            }
            Part::Zeros(count) => file.resize(file.len() + count * PAGE, 0),
            Part::New(numbers) => file.extend(pages(numbers)),
            Part::Shift(bytes) => file.resize(file.len() + bytes, 7),
        }
    }
    file
}

/// The fewest pages that a delta can store.
fn fewest(base: &[u8], file: &[u8]) -> usize {
    let known: HashSet<&[u8]> = base.chunks_exact(PAGE).collect();
    let mut padded = file.to_vec();
    padded.resize(file.len().next_multiple_of(PAGE), 0);
    padded.chunks(PAGE).filter(|page| !is_zero(page) && !known.contains(page)).collect::<HashSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_file_survives_the_round_trip(
        numbers in proptest::collection::vec(0_u8..32, 0..200),
        base_tail in 0_usize..PAGE,
        parts in proptest::collection::vec(part(), 0..8),
        cut in 0_usize..PAGE,
    ) {
        let mut base = pages(&numbers);
        base.resize(base.len() + base_tail, 9);
        let mut file = assembled(&base, &parts);
        file.truncate(file.len().saturating_sub(cut));
        let f = Fixture::new(&base);
        let delta = f.delta(&file);
        prop_assert_eq!(f.plan(&delta, file.len()).unwrap().own as usize, fewest(&base, &file));
        prop_assert!(f.rebuilt(&delta, file.len()).unwrap() == file);
    }

    #[test]
    fn a_damaged_plan_never_panics_and_never_makes_another_size(
        position in 0_usize..HEADER + 4 * RUN,
        byte in any::<u8>(),
        length in 0_usize..3 * PAGE,
    ) {
        let f = Fixture::new(&pages(&[1, 2, 3, 4, 5]));
        let file = pages(&[1, 2, 0, 9, 4, 5, 9]);
        let mut delta = f.delta(&file);
        delta[position] = byte;
        if let Ok(rebuilt) = f.rebuilt(&delta, file.len()) {
            prop_assert_eq!(rebuilt.len(), file.len());
        }
        if length != delta.len() {
            delta.resize(length, 0);
            prop_assert!(f.rebuilt(&delta, file.len()).is_err());
        }
        prop_assert!(f.plan(&delta[..length.min(delta.len() - 1)], file.len()).is_err());
    }
}

#[test]
fn what_is_alike_is_one_run() {
    let base = pages(&[1, 2, 3, 0, 5, 5, 7]);
    let f = Fixture::new(&base);
    let run = |source, first, count| Run { source, first, count };
    let runs = |file: &[u8]| f.plan(&f.delta(file), file.len()).unwrap().runs;
    assert_eq!(runs(&[]), []);
    let equal = [run(Source::Base, 0, 3), run(Source::Zero, 0, 1), run(Source::Base, 4, 3)];
    // Two threads compare, and the second one finds the first of equal pages.
    assert_eq!(runs(&base), equal);
    assert_eq!(runs(&pages(&[0; 100])), [run(Source::Zero, 0, 100)]);
    let own = [run(Source::Own, 0, 2), run(Source::Base, 2, 1), run(Source::Own, 0, 2)];
    assert_eq!(runs(&pages(&[20, 21, 3, 20, 21])), own);
}

#[test]
fn long_files_are_read_in_batches() {
    let base: Vec<u8> = (0..1000_u32).flat_map(|number| number.to_le_bytes().repeat(PAGE / 4)).collect();
    let f = Fixture::new(&base);
    let mut file = base[PAGE..].to_vec();
    file.extend(vec![0; 300 * PAGE]);
    file.extend((5000..5500_u32).flat_map(|number| number.to_le_bytes().repeat(PAGE / 4)));
    file.extend(&base[..PAGE * 500]);
    file.truncate(file.len() - 3);
    let delta = f.delta(&file);
    assert_eq!(f.plan(&delta, file.len()).unwrap().own, 501, "the cut page is another one");
    assert!(f.rebuilt(&delta, file.len()).unwrap() == file);
}

#[test]
fn each_fault_of_a_plan_is_told() {
    let f = Fixture::new(&pages(&[1, 2, 3]));
    let file = pages(&[1, 2, 9, 0]);
    let good = f.delta(&file);
    let plan = f.plan(&good, file.len()).unwrap();
    let fault = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let mut bytes = plan.encode();
        bytes.extend(pages(&[9]));
        f.plan(&bytes, file.len()).unwrap_err().to_string()
    };
    assert_eq!(fault(&|plan| plan.size -= 1), "it is of a file of another size");
    assert_eq!(fault(&|plan| plan.base_size += 1), "it is against a file of another size");
    assert_eq!(fault(&|plan| plan.own = 2), "its parts do not add up to its size");
    assert_eq!(fault(&|plan| plan.runs[0].first = 2), "it refers to pages that are not there");
    assert_eq!(fault(&|plan| plan.runs[0].first = u32::MAX), "it refers to pages that are not there");
    assert_eq!(fault(&|plan| plan.runs[1].first = 1), "it refers to pages that are not there");
    assert_eq!(fault(&|plan| plan.runs[2].first = 1), "it refers to pages that are not there");
    assert_eq!(fault(&|plan| plan.runs[2].count = 0), "it refers to pages that are not there");
    assert_eq!(fault(&|plan| plan.runs[2].count = 1 << 29), "its pages do not add up to the file");
    assert_eq!(fault(&|plan| plan.runs[0].count = 1), "its pages do not add up to the file");
    let mut bytes = good.clone();
    bytes[HEADER + 7] = 0xff;
    assert_eq!(f.plan(&bytes, file.len()).unwrap_err().to_string(), "it has a run of an unknown kind");
    assert_eq!(f.plan(&good[..20], file.len()).unwrap_err().to_string(), "it is shorter than its header");
    bytes[0] = b'X';
    assert_eq!(f.plan(&bytes, file.len()).unwrap_err().to_string(), "it does not begin like a delta");
    assert!(f.rebuilt(&good, file.len()).unwrap() == file);
}

/// Prints how long each step takes, for the files that two variables name: a snapshot's and its template's `pages.img`.
#[test]
#[ignore = "a measurement: PANDASTACK_MEASURE_FILE and PANDASTACK_MEASURE_BASE name its files"]
fn measure() {
    let contents = |name: &str| fs_err::read(std::env::var(name).unwrap()).unwrap();
    let file = contents("PANDASTACK_MEASURE_FILE");
    let f = Fixture::new(&contents("PANDASTACK_MEASURE_BASE"));
    let whole = f.file("whole", &file);
    let timed = |what: &str, step: &mut dyn FnMut()| {
        let clock = || {
            let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            used.tv_sec * 1000 + used.tv_nsec / 1_000_000
        };
        let (start, used) = (std::time::Instant::now(), clock());
        step();
        println!("{what}: {} ms, {} ms of processors", start.elapsed().as_millis(), clock() - used);
    };
    timed("read the base, first time", &mut || drop(f.base()));
    timed("read the base, again", &mut || drop(f.base()));
    let base = f.base();
    for _ in 0..3 {
        timed("compare", &mut || drop(make(&whole, file.len() as u64, &base).unwrap()));
    }
    let made = make(&whole, file.len() as u64, &base).unwrap();
    let path = f.dir.path().join("delta");
    timed("write", &mut || made.write(&whole, &mut File::create(&path).unwrap()).unwrap());
    timed("sync", &mut || File::open(&path).unwrap().sync_all().unwrap());
    let delta = File::open(&path).unwrap();
    let plan = Plan::read(&delta, file.len() as u64, base.size).unwrap();
    println!("{} runs, {} own pages, {} bytes of {}", plan.runs.len(), plan.own, made.encoded_size(), file.len());
    let rebuilt = |how: &str, make: &dyn Fn() -> File| {
        let target = make();
        timed(&format!("rebuild {how}"), &mut || {
            rebuild(&delta, file.len() as u64, (&base.file, base.size), &target).unwrap();
        });
        let mut contents = vec![0; file.len()];
        target.read_exact_at(&mut contents, 0).unwrap();
        assert!(contents == file);
        let mut open = Some(target);
        timed("close", &mut || drop(open.take()));
    };
    for _ in 0..5 {
        let target = f.dir.path().join("rebuilt");
        rebuilt("on the disk", &|| {
            let open = File::options().read(true).write(true).create_new(true).open(&target).unwrap();
            fs_err::remove_file(&target).unwrap();
            open
        });
        rebuilt("in memory", &|| memory::create(file.len() as u64).unwrap());
    }
}
