//! The hall, driven at `Handler::call`.
