//! user_namespace
