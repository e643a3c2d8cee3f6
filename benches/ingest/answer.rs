//! One HTTP/1.1 answer off a socket: as little as a load generator has to understand.

use std::io;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Longer heads or bodies than any of the servers sends.
const ROOM: usize = 4096;

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The provider would not send this again.
    Ack,
    /// Refused for good: 400 or 401, or Alipay's `failure` with a 200.
    Refused,
    /// Anything else.
    Other,
}

/// Reads answers off one connection.
pub(crate) struct Reader {
    bytes: [u8; ROOM],
    filled: usize,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; ROOM],
            filled: 0,
        }
    }

    /// The next answer; nothing is pipelined, so nothing may stand behind it.
    pub(crate) async fn next(&mut self, stream: &mut TcpStream) -> io::Result<Answer> {
        self.filled = 0;
        loop {
            let room = self.bytes.get_mut(self.filled..).unwrap_or_default();
            let read = stream.read(room).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.filled += read;
            if let Some(answer) = whole(self.bytes.get(..self.filled).unwrap_or_default())? {
                return Ok(answer);
            }
        }
    }
}

/// The answer that `bytes` hold; `None`: not all of it is there.
fn whole(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(|_| odd())?;
    let body = bytes.get(end + 4..).unwrap_or_default();
    let status: u16 = head
        .get(9..12)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(odd)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = match (status, length) {
        (_, Some(length)) => length,
        (204, None) => 0,
        _ => return Err(odd()),
    };
    if body.len() < length {
        return Ok(None);
    }
    Ok(Some(match status {
        200 if body.starts_with(b"fail") => Answer::Refused,
        200 | 204 => Answer::Ack,
        400 | 401 => Answer::Refused,
        _ => Answer::Other,
    }))
}
