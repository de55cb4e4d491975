//! Bounds on protobuf messages before they are decoded: an empty object takes two bytes of a message
//! and hundreds in memory.

use std::marker::PhantomData;

use bytes::Buf;
use kubepods::POD_OBJECTS;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::grpc::podresources_v1::{AllocatableResourcesResponse, ListPodResourcesResponse};

/// Maximum number of objects of a message: pods, containers, claims, labels, CPU ids. A node may
/// have [`kubepods::PODS`] pods and [`kubepods::CONTAINERS`] containers.
const OBJECTS: usize = 64 << 10;

/// Fields of a message that are stored as objects; all others are skipped or have a length.
pub(crate) type Shape = [(u32, Field)];

/// A repeated field, or one that holds a message.
pub(crate) enum Field {
    /// A message.
    One(&'static Shape),
    /// A list that decides whether a pod is too large.
    List(&'static Shape),
    Numbers,
}

use Field::{List, Numbers, One};

const CLAIMS: &Shape = &[(4, One(&[]))];
const CONTAINER: &Shape = &[(3, Numbers), (5, One(CLAIMS))];
const POD_RESOURCES: &Shape = &[(1, One(&[(3, One(CONTAINER)), (4, Numbers)]))];
const ALLOCATABLE: &Shape = &[(2, Numbers)];

const AMOUNTS: &Shape = &[(1, One(&[])), (2, One(&[])), (3, One(&[]))];
const METADATA: &Shape = &[(11, List(&[])), (12, One(&[])), (13, List(&[]))];
const SPEC_CONTAINER: &Shape = &[(8, One(AMOUNTS)), (25, One(&[]))];
const SPEC: &Shape = &[
    (2, List(SPEC_CONTAINER)),
    (20, List(SPEC_CONTAINER)),
    (34, List(&[(1, One(SPEC_CONTAINER))])),
    (40, One(AMOUNTS)),
];
const CONTAINER_STATUS: &Shape = &[(2, One(&[])), (3, One(&[])), (11, One(AMOUNTS))];
const STATUS: &Shape = &[
    (2, List(&[])),
    (8, List(CONTAINER_STATUS)),
    (10, List(CONTAINER_STATUS)),
    (13, List(CONTAINER_STATUS)),
    (20, One(AMOUNTS)),
];
const POD: &Shape = &[(1, One(METADATA)), (2, One(SPEC)), (3, One(STATUS))];

/// The size of a message.
#[derive(Debug, Default)]
struct Size {
    objects: usize,
    /// Whether a list of a pod has more than [`POD_OBJECTS`] elements.
    has_long_list: bool,
}

impl Size {
    fn of(message: &[u8], shape: &Shape) -> Result<Self, DecodeError> {
        let mut size = Self::default();
        size.add(message, shape)?;
        Ok(size)
    }

    /// Counts the objects of a message, until there are too many.
    fn add(&mut self, mut message: &[u8], shape: &Shape) -> Result<(), DecodeError> {
        let mut lengths = [0; 8];
        while !message.is_empty() && self.objects <= OBJECTS {
            let (tag, wire_type) = decode_key(&mut message)?;
            let known = shape.iter().position(|(known, _)| *known == tag);
            let Some(at) = known else {
                skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
                continue;
            };
            if wire_type != WireType::LengthDelimited {
                self.objects += 1;
                skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
                continue;
            }
            let field = take(&mut message)?;
            match shape[at].1 {
                // The last byte of each number has no high bit.
                Numbers => self.objects += field.iter().filter(|byte| **byte < 0x80).count(),
                One(shape) => {
                    self.objects += 1;
                    self.add(field, shape)?;
                }
                List(shape) => {
                    self.objects += 1;
                    lengths[at] += 1;
                    self.has_long_list |= lengths[at] > POD_OBJECTS;
                    self.add(field, shape)?;
                }
            }
        }
        Ok(())
    }
}

/// Takes a field with a length off the message.
fn take<'a>(message: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let mut field = *message;
    skip_field(WireType::LengthDelimited, 1, message, DecodeContext::default())?;
    field = &field[..field.len() - message.len()];
    decode_varint(&mut field)?;
    Ok(field)
}

/// Whether a `v1.Pod` has more objects than are kept of a pod.
pub(crate) fn is_too_large(pod: &[u8]) -> Result<bool, DecodeError> {
    let size = Size::of(pod, POD)?;
    Ok(size.has_long_list || size.objects > OBJECTS)
}

/// A `v1.Pod` of which only the UID is read.
#[derive(Clone, PartialEq, Message)]
struct Unread {
    #[prost(message, optional, tag = "1")]
    metadata: Option<UnreadMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct UnreadMetadata {
    #[prost(string, tag = "5")]
    uid: String,
}

/// UID of a `v1.Pod`; empty if it has none.
pub(crate) fn uid_of(pod: &[u8]) -> Result<String, DecodeError> {
    Ok(Unread::decode(pod)?.metadata.unwrap_or_default().uid)
}

/// A response whose size is bounded.
pub(crate) trait Bounded: Message + Default {
    const SHAPE: &'static Shape;
}

impl Bounded for ListPodResourcesResponse {
    const SHAPE: &'static Shape = POD_RESOURCES;
}

impl Bounded for AllocatableResourcesResponse {
    const SHAPE: &'static Shape = ALLOCATABLE;
}

/// Decodes a response with at most [`OBJECTS`] objects.
fn decode<U: Bounded>(message: &[u8]) -> Result<U, Status> {
    let invalid = |error: DecodeError| Status::internal(error.to_string());
    if Size::of(message, U::SHAPE).map_err(invalid)?.objects > OBJECTS {
        let text = format!("the answer has more than {OBJECTS} pods, containers and CPUs");
        return Err(Status::resource_exhausted(text));
    }
    U::decode(message).map_err(invalid)
}

/// Codec of a client of which the responses are bounded.
#[derive(Debug)]
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + 'static,
    U: Bounded + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// Decoder of [`BoundedCodec`].
#[derive(Debug)]
pub(crate) struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Bounded> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        decode(&buffer.copy_to_bytes(buffer.remaining())).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::core_v1;
    use crate::grpc::podresources_v1::{ContainerResources, PodResources};

    /// A field with a length.
    fn field(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![tag << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut field);
        field.extend(content);
        field
    }

    /// Decodes with at most this memory.
    fn answer(message: &[u8]) -> Result<ListPodResourcesResponse, Status> {
        corpus::within(64 << 10, || decode(message))
    }

    #[test]
    fn a_list_of_empty_objects_is_refused_before_it_takes_memory() {
        let pods = field(1, b"").repeat(2 << 20);
        let containers = field(1, &field(3, b"").repeat(2 << 20));
        let claims = field(1, &field(3, &field(5, &field(4, b"").repeat(2 << 20))));
        let packed = field(1, &field(4, &[7; 2 << 20]));
        let single = field(1, &[4 << 3, 7].repeat(2 << 20));
        for message in [pods, containers, claims, packed, single] {
            let status = answer(&message).expect_err("too many objects");
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        }
    }

    #[test]
    fn a_list_of_a_full_node_is_decoded() {
        let container = || ContainerResources { cpu_ids: vec![300], ..Default::default() };
        let pod = |_| PodResources {
            containers: (0..4).map(|_| container()).collect(),
            ..Default::default()
        };
        let list =
            ListPodResourcesResponse { pod_resources: (0..kubepods::PODS).map(pod).collect() };
        let found: ListPodResourcesResponse = decode(&list.encode_to_vec()).expect("it fits");
        assert_eq!(found, list);
    }

    #[test]
    fn a_pod_with_too_many_objects_is_known_without_decoding() {
        let metadata = field(1, &field(5, b"the-uid"));
        let of_spec = |fields: Vec<u8>| [metadata.clone(), field(2, &fields)].concat();
        let containers = |count| of_spec(field(2, b"").repeat(count));
        let claims = of_spec(field(2, &field(8, &field(3, b"").repeat(2 << 20))));
        let is_large = |pod: &[u8]| corpus::within(64 << 10, || is_too_large(pod)).expect("a pod");
        assert!(is_large(&containers(2 << 20)) && is_large(&claims));
        assert!(is_large(&containers(POD_OBJECTS + 1)) && !is_large(&containers(POD_OBJECTS)));
        assert_eq!(uid_of(&claims).expect("a pod"), "the-uid");
    }

    /// A pod has few containers, but may have thousands of annotations.
    #[test]
    fn a_pod_with_many_annotations_is_no_large_pod() {
        let annotations = (0..5_000).map(|n| (n.to_string(), String::new())).collect();
        let metadata = core_v1::ObjectMeta { annotations, ..Default::default() };
        let pod = core_v1::Pod { metadata: Some(metadata), ..Default::default() };
        assert!(!is_too_large(&pod.encode_to_vec()).expect("a pod"));
    }
}
