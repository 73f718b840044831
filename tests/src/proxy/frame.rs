//! The messages of MongoDB's wire protocol, parsed as far as the proxy needs it.

use std::io;

use mongodb::bson::{Document, RawDocument};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::purpose::Seen;

/// The length of the header of a message, in bytes.
const HEADER: usize = 16;
/// The longest message in bytes that the proxy accepts. The server's own limit is 48 MB.
const LIMIT: usize = 64 << 20;
/// The code of the message kind that carries commands and replies.
const OP_MSG: i32 = 2013;

/// One whole message.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// The next message, or `None` at the end of the connection.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; HEADER];
        match from.read_exact(&mut bytes).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        };
        let length = int(&bytes, 0).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (HEADER..=LIMIT).contains(length));
        bytes.resize(length.ok_or(io::ErrorKind::InvalidData)?, 0);
        from.read_exact(&mut bytes[HEADER..]).await?;
        Ok(Some(Self(bytes)))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn request_id(&self) -> Option<i32> {
        int(&self.0, 4)
    }

    pub(super) fn response_to(&self) -> Option<i32> {
        int(&self.0, 8)
    }

    /// The command of a request. The old form of the first handshake (`OP_QUERY`) has none.
    pub(super) fn command(&self) -> Option<Seen> {
        if int(&self.0, 12) != Some(OP_MSG) {
            return None;
        }
        // After the header and the flags come sections: kind 0 is the command, kind 1 a list of documents for it.
        let mut at = HEADER + 4;
        while *self.0.get(at)? == 1 {
            at += 1 + usize::try_from(int(&self.0, at + 1)?)
                .ok()
                .filter(|length| *length > 0)?;
        }
        let length = usize::try_from(int(&self.0, at + 1)?).ok()?;
        let document = RawDocument::from_bytes(self.0.get(at + 1..)?.get(..length)?).ok()?;
        Seen::of(&Document::try_from(document).ok()?)
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
