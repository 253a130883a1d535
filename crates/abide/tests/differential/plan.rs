//! The operations of a random workflow: a program that is its input.

use serde::{Deserialize, Serialize};

use super::rng::Rng;

/// One thing after the other.
pub type Program = Vec<Op>;

/// One thing that a workflow does. Times are in milliseconds, and such that no two things are ever due at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// A step that fails so many times first, and is tried so often.
    Step {
        name: u32,
        fails: u32,
        tries: u32,
        again: u32,
    },
    /// A step that is not over at once: only where nothing else goes on.
    Slow(u32),
    /// The next signal of a name.
    Signal { name: u32, within: Option<u32> },
    /// Time.
    Sleep(u32),
    /// Time after a moment that was recorded.
    SleepUntil(u32),
    /// A job that begins later; every fifth fails.
    Job {
        input: u32,
        delay: u32,
        within: Option<u32>,
    },
    /// Several of them.
    Jobs {
        delays: Vec<u32>,
        at_least: Option<u32>,
        within: Option<u32>,
    },
    /// Another workflow.
    Nested {
        program: Program,
        delay: u32,
        within: Option<u32>,
    },
    /// A condition: the level is that high.
    Condition { level: u32, within: Option<u32> },
    /// Raises the level.
    Raise,
    /// Several things at once.
    All(Vec<Program>),
    /// The first of several.
    Select(Vec<Program>),
    /// The time.
    Now,
    /// A random number.
    Random,
    /// A unique id.
    Uuid,
    /// A value that the code gets by itself.
    SideEffect(u32),
    /// A change of the code.
    Version(u32),
    /// Things that are undone, each, if it fails in the end.
    Saga { does: Program, fails: bool },
    /// Something that no workflow may do, because it differs when the code runs again. Never generated.
    Undetermined,
    /// The end, and a new beginning.
    Again(Program),
    /// A bad end.
    Fail,
}

/// The operations that a workflow may have.
#[derive(Clone, Copy)]
pub struct Scope {
    /// The maximum depth of nesting.
    depth: u32,
    /// The longest time.
    time: u32,
    /// `true` if something else goes on meanwhile.
    beside: bool,
    /// `true` if it is signalled.
    signalled: bool,
    /// `true` if its level is raised.
    level: bool,
    /// `true` if times decide which branch is first.
    races: bool,
}

impl Scope {
    /// For a clock that stands still until it is moved.
    pub const VIRTUAL: Self = Self {
        depth: 3,
        time: 10_000_000,
        beside: false,
        signalled: true,
        level: true,
        races: true,
    };

    /// For a clock that goes on while things are done: without races.
    pub const REAL: Self = Self {
        depth: 2,
        time: 20,
        beside: false,
        signalled: true,
        level: true,
        races: false,
    };

    fn deeper(self) -> Self {
        Self {
            depth: self.depth - 1,
            ..self
        }
    }

    fn branch(self) -> Self {
        Self {
            beside: true,
            ..self.deeper()
        }
    }

    fn nested(self) -> Self {
        Self {
            signalled: false,
            level: self.races,
            beside: false,
            ..self.deeper()
        }
    }
}

/// A random program.
pub fn program(rng: &mut Rng, scope: Scope) -> Program {
    let length = rng.between(1, if scope.beside { 3 } else { 5 });
    let mut program: Program = (0..length).map(|_| op(rng, scope)).collect();
    if !scope.beside && scope.depth > 1 && rng.chance(8) {
        let level = scope.races;
        let rest = self::program(
            rng,
            Scope {
                level,
                ..scope.deeper()
            },
        );
        program.push(Op::Again(rest));
    } else if !scope.beside && rng.chance(8) {
        program.push(Op::Fail);
    }
    program
}

fn op(rng: &mut Rng, scope: Scope) -> Op {
    let deep = scope.depth > 0;
    loop {
        let op = match rng.below(22) {
            0..=2 => step(rng, scope),
            3 if !scope.beside => Op::Slow(rng.below(3)),
            4..=6 => Op::Signal {
                name: rng.below(3),
                within: within(rng, scope, !scope.signalled),
            },
            7 => Op::Sleep(time(rng, scope)),
            8 => Op::SleepUntil(time(rng, scope)),
            9 if scope.races || !scope.beside => Op::Job {
                input: rng.below(10),
                delay: time(rng, scope),
                within: within(rng, scope, false),
            },
            10 if scope.races || !scope.beside => {
                let count = rng.between(0, 3);
                Op::Jobs {
                    delays: (0..count).map(|_| time(rng, scope)).collect(),
                    at_least: (scope.races && rng.chance(40)).then(|| rng.below(count + 1)),
                    within: within(rng, scope, false),
                }
            }
            11 if deep && (scope.races || !scope.beside) => Op::Nested {
                program: program(rng, scope.nested()),
                delay: time(rng, scope),
                within: within(rng, scope, false),
            },
            12 | 13 if scope.level => Op::Condition {
                level: rng.between(1, 4),
                within: within(rng, scope, !scope.signalled),
            },
            14 => Op::Raise,
            15 if deep => Op::All(branches(rng, scope)),
            16 | 17 if deep && scope.races => Op::Select(branches(rng, scope)),
            18 => match rng.below(4) {
                0 => Op::Now,
                1 => Op::Random,
                2 => Op::Uuid,
                _ => Op::SideEffect(rng.below(100)),
            },
            19 => Op::Version(rng.below(3)),
            20 if deep => Op::Saga {
                does: program_of_steps(rng, scope),
                fails: rng.chance(60),
            },
            _ => continue,
        };
        return op;
    }
}

fn step(rng: &mut Rng, scope: Scope) -> Op {
    let fails = if rng.chance(35) { rng.between(1, 3) } else { 0 };
    Op::Step {
        name: rng.below(10),
        // A time of one's own to be tried at again is another race.
        fails: if scope.races || !scope.beside {
            fails
        } else {
            0
        },
        tries: rng.between(1, 3),
        again: time(rng, scope),
    }
}

fn program_of_steps(rng: &mut Rng, scope: Scope) -> Program {
    let length = rng.between(1, 3);
    let one = |_| match rng.chance(70) {
        true => step(rng, scope),
        false => op(rng, scope.branch()),
    };
    (0..length).map(one).collect()
}

fn branches(rng: &mut Rng, scope: Scope) -> Vec<Program> {
    let count = rng.between(1, 3);
    (0..count).map(|_| program(rng, scope.branch())).collect()
}

fn time(rng: &mut Rng, scope: Scope) -> u32 {
    rng.between(1, scope.time)
}

/// A time limit: one of a race, but where nothing else ends the wait.
fn within(rng: &mut Rng, scope: Scope, always: bool) -> Option<u32> {
    (always || scope.races && rng.chance(40)).then(|| time(rng, scope))
}

/// Programs that do a little less.
pub fn smaller(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for (index, op) in program.iter().enumerate() {
        let mut put = |instead: Vec<Op>| {
            let mut less = program.clone();
            less.splice(index..=index, instead);
            all.push(less);
        };
        put(Vec::new());
        match op {
            Op::All(branches) | Op::Select(branches) => {
                let again = match op {
                    Op::All(_) => Op::All,
                    _ => Op::Select,
                };
                for (at, branch) in branches.iter().enumerate() {
                    put(branch.clone());
                    for less in smaller(branch) {
                        let mut branches = branches.clone();
                        branches[at] = less;
                        put(vec![again(branches)]);
                    }
                    if branches.len() > 1 {
                        let mut branches = branches.clone();
                        branches.remove(at);
                        put(vec![again(branches)]);
                    }
                }
            }
            Op::Saga { does, fails } => {
                put(does.clone());
                for does in smaller(does) {
                    let fails = *fails;
                    put(vec![Op::Saga { does, fails }]);
                }
            }
            Op::Nested {
                program,
                delay,
                within,
            } => {
                for program in smaller(program) {
                    put(vec![Op::Nested {
                        program,
                        delay: *delay,
                        within: *within,
                    }]);
                }
            }
            Op::Again(program) => {
                put(program.clone());
                smaller(program)
                    .into_iter()
                    .for_each(|less| put(vec![Op::Again(less)]));
            }
            _ => {}
        }
    }
    all
}
