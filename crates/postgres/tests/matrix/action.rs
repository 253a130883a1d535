//! Actions that can happen to an instance.

/// Something that happens to an instance, or to one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Deliver,
    Park,
    End,
    /// With all its children.
    Cancel,
    /// Its parent is cancelled, and it with that.
    CancelParent,
    Restart,
    ChildEnds,
    Reclaim,
    Sweep,
    Update,
    Publish,
    Continue,
    /// Under the same key.
    Start,
}

pub const ACTIONS: [Action; 13] = [
    Action::Deliver,
    Action::Park,
    Action::End,
    Action::Cancel,
    Action::CancelParent,
    Action::Restart,
    Action::ChildEnds,
    Action::Reclaim,
    Action::Sweep,
    Action::Update,
    Action::Publish,
    Action::Continue,
    Action::Start,
];

impl Action {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Park => "park",
            Self::End => "end",
            Self::Cancel => "cancel",
            Self::CancelParent => "cancel-parent",
            Self::Restart => "restart",
            Self::ChildEnds => "child-ends",
            Self::Reclaim => "reclaim",
            Self::Sweep => "sweep",
            Self::Update => "update",
            Self::Publish => "publish",
            Self::Continue => "continue",
            Self::Start => "start",
        }
    }
}
