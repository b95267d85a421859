"""What people and programs read: ranking, exports, frames, status, terminal, page."""
