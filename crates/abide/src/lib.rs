//! abide
