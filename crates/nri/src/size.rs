//! Decoding of messages whose objects are bounded before: an empty object takes two bytes of a
//! message, and hundreds in memory.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message, Name};

use crate::dispatch::Fault;

/// Maximum memory of the objects of one message, bytes: 100,000 environment variables.
pub(crate) const MESSAGE_OBJECTS: usize = 8 << 20;

// Elements for which a list, or a map, first has space.
const FIRST_OF_LIST: usize = 4;
const FIRST_OF_MAP: usize = 11;

/// Elements for which there may be space per element afterwards: a list that grows is in memory
/// twice, the new one with twice the space.
const GROWTH: usize = 3;

/// A field that may take more memory than its encoding: a list, a map, or a message.
struct Field {
    tag: u32,
    /// Memory of an element, bytes; 0 for a message that has its place in the outer one.
    element: usize,
    is_map: bool,
    /// Whether one encoded field may have many numbers.
    is_packed: bool,
    /// Its message in [`MESSAGES`].
    message: Option<usize>,
}

// The names of all messages, with these fields.
include!(concat!(env!("OUT_DIR"), "/sizes.rs"));

/// Decodes a message whose objects take at most [`MESSAGE_OBJECTS`].
pub(crate) fn decode<M: Message + Name + Default>(payload: &[u8]) -> Result<M, Fault> {
    let objects = objects_of::<M>(payload, MESSAGE_OBJECTS)?;
    if objects > MESSAGE_OBJECTS {
        return Err(Fault::ManyObjects(objects));
    }
    Ok(M::decode(payload)?)
}

/// Memory of the elements of all lists and maps of an encoded message, bytes, without their text.
/// Stops above `limit`.
pub(crate) fn objects_of<M: Name>(payload: &[u8], limit: usize) -> Result<usize, DecodeError> {
    let name = M::full_name();
    let fields = MESSAGES.iter().find(|(other, _)| *other == name).map_or(&[][..], |row| row.1);
    let mut objects = Objects { bytes: 0, limit };
    objects.add(payload, fields)?;
    Ok(objects.bytes)
}

struct Objects {
    bytes: usize,
    limit: usize,
}

impl Objects {
    fn add(&mut self, mut message: &[u8], fields: &[Field]) -> Result<(), DecodeError> {
        let mut seen = 0_u64;
        while !message.is_empty() && self.bytes <= self.limit {
            let (tag, wire_type) = decode_key(&mut message)?;
            let Some(at) = fields.iter().position(|field| field.tag == tag) else {
                skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
                continue;
            };
            let (field, before) = (&fields[at], message);
            skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
            let mut content = &before[..before.len() - message.len()];
            let has_length = wire_type == WireType::LengthDelimited;
            if has_length {
                decode_varint(&mut content)?;
            }
            let is_first = seen & 1 << at == 0;
            seen |= 1 << at;
            self.bytes += field.memory(is_first, if has_length { content } else { &[0] });
            if let Some(of) = field.message.filter(|_| has_length) {
                self.add(content, MESSAGES[of].1)?;
            }
        }
        Ok(())
    }
}

impl Field {
    fn memory(&self, is_first: bool, content: &[u8]) -> usize {
        let count = match self.is_packed {
            // The last byte of each number has no high bit.
            true => content.iter().filter(|byte| **byte < 0x80).count(),
            false => 1,
        };
        let first = if self.is_map { FIRST_OF_MAP } else { FIRST_OF_LIST };
        self.element * (GROWTH * count + if is_first { first } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        Container, CreateContainerRequest, SynchronizeRequest, ValidateContainerAdjustmentRequest,
    };

    /// A field with a length.
    fn field(tag: u32, content: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        prost::encoding::encode_key(tag, WireType::LengthDelimited, &mut field);
        prost::encoding::encode_varint(content.len() as u64, &mut field);
        field.extend(content);
        field
    }

    /// Messages of this type with `count` elements in one of their lists, at any depth.
    fn with_one_list(of: usize, count: u32) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for list in MESSAGES[of].1 {
            if list.element > 0 {
                // Keys of maps differ.
                let key = |n: u32| if list.is_map { n.to_string() } else { String::new() };
                let element = |n| match key(n).as_str() {
                    "" => Vec::new(),
                    key => field(1, key.as_bytes()),
                };
                found.push((0..count).flat_map(|n| field(list.tag, &element(n))).collect());
            }
            for inner in list.message.map_or_else(Vec::new, |of| with_one_list(of, count)) {
                found.push(field(list.tag, &inner).repeat(if list.element > 0 { 3 } else { 1 }));
            }
        }
        found
    }

    fn each_list_takes_what_is_expected<M: Message + Name + Default>() {
        let of = MESSAGES.iter().position(|row| row.0 == M::full_name()).unwrap();
        for count in [1, 5, 300] {
            for message in with_one_list(of, count) {
                let objects = objects_of::<M>(&message, usize::MAX).unwrap();
                // Keys are text.
                let limit = objects + 2 * message.len();
                // Numbers and keys of maps may be of another type.
                let _ = corpus::within(limit, || M::decode(&message[..]).map(drop));
            }
        }
    }

    #[test]
    fn no_list_takes_more_memory_than_expected() {
        each_list_takes_what_is_expected::<SynchronizeRequest>();
        each_list_takes_what_is_expected::<ValidateContainerAdjustmentRequest>();
    }

    #[test]
    fn objects_inside_of_a_container_are_refused_before_they_take_memory() {
        let many = |tag| field(tag, b"").repeat(1 << 20);
        let hook = field(10, &field(1, &many(2)));
        let seccomp = field(11, &field(8, &field(7, &many(4))));
        let groups = field(21, &field(3, &[7; 2 << 20]));
        for container in [many(7), many(9), many(20), hook, seccomp, groups] {
            let payload = field(2, &container);
            let decoded = corpus::within(1 << 10, || decode::<CreateContainerRequest>(&payload));
            assert!(matches!(decoded, Err(Fault::ManyObjects(_))), "{decoded:?}");
        }
    }

    /// As with the service links of 5,000 services.
    #[test]
    fn a_container_with_35000_variables_is_decoded() {
        let env: Vec<_> = (0..35_000).map(|n| format!("SERVICE_{n}_PORT=80")).collect();
        let container = Container { env, ..Container::default() };
        let request = CreateContainerRequest { pod: None, container: Some(container) };
        assert_eq!(decode(&request.encode_to_vec()), Ok(request));
    }
}
