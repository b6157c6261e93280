//! Greenroom's MCP client against real servers: the market, the reference servers from npm and PyPI,
//! and servers that misbehave (T1, T2, T4, T5, X5, E6, R1, S6).

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod elicitation;
mod harness;
mod market;
mod misbehaving;
mod misbehaving_http;
mod numbers;
mod reference;
