//! Connections: the listener accepts them, and limits their number. The module `delivery` aborts
//! answers that clients read too slowly, and the module `websocket` sends watches over WebSocket.

pub mod connections;
pub mod delivery;
mod lingering;
pub mod listen;
mod settings;
pub mod websocket;
