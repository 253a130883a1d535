//! Readers whose errors know where they occurred: of JSON, level by level, and of the parameters of a query.

use std::num::{IntErrorKind, ParseIntError};

use serde::de::value::{MapAccessDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer,
    MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

use super::{Leg, Place, Unfit, one_of, quoted, shown};

/// The most levels of arrays and objects that are read. Each level is scanned once more than the one around it.
const DEPTH_MAX: usize = 32;

/// Reads text that is JSON as a `T`.
pub(super) fn json<T: DeserializeOwned>(json: &str) -> Result<T, Unfit> {
    let path = Path::Root;
    let json = json.trim();
    T::deserialize(At { json, path: &path }).map_err(|unfit| unfit.at(|| path.of(shown(json))))
}

/// Reads the parameters of a query as a `T`.
pub(super) fn query<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T, Unfit> {
    let pairs = Pairs {
        pairs: pairs.iter(),
        value: None,
    };
    T::deserialize(MapAccessDeserializer::new(pairs))
}

/// The path from the whole to a value. It is written out only for an error.
enum Path<'p> {
    Root,
    Field(&'p Self, &'p str),
    Index(&'p Self, usize),
}

impl Path<'_> {
    fn legs(&self) -> Vec<Leg> {
        let (mut legs, leg) = match self {
            Self::Root => return Vec::new(),
            Self::Field(parent, name) => (parent.legs(), Leg::Field((*name).to_owned())),
            Self::Index(parent, index) => (parent.legs(), Leg::Index(*index)),
        };
        legs.push(leg);
        legs
    }

    /// Returns the place of a value that is found here.
    fn of(&self, found: String) -> Place {
        let legs = self.legs();
        Place { legs, found }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Root => 0,
            Self::Field(parent, _) | Self::Index(parent, _) => parent.depth() + 1,
        }
    }
}

/// A JSON value and its path.
#[derive(Clone, Copy)]
struct At<'p, 'de> {
    json: &'de str,
    path: &'p Path<'p>,
}

impl<'de> At<'_, 'de> {
    fn read<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unfit> {
        seed.deserialize(self)
            .map_err(|unfit| unfit.at(|| self.path.of(shown(self.json))))
    }

    fn first(self) -> Option<u8> {
        self.json.as_bytes().first().copied()
    }

    fn parsed<T: DeserializeOwned>(self) -> Result<T, Unfit> {
        serde_json::from_str(self.json).map_err(Unfit::custom)
    }

    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        // The text is JSON, so a number that cannot be parsed is one that is too large.
        let number = serde_json::from_str::<serde_json::Number>(self.json);
        let number = number.map_err(|_| Unfit::expected("a smaller number"))?;
        match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => visitor.visit_u64(number),
            (_, Some(number), _) => visitor.visit_i64(number),
            (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
        }
    }

    /// Reads the elements of a list or the fields of an object, one after the other.
    fn members<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        if self.path.depth() >= DEPTH_MAX {
            return Err(Unfit::custom("invalid, below too many levels of JSON"));
        }
        let path = self.path;
        let read = serde_json::Deserializer::from_str(self.json)
            .deserialize_any(Members { visitor, path });
        read.unwrap_or_else(|error| Err(Unfit::custom(error)))
    }
}

impl<'de> Deserializer<'de> for At<'_, 'de> {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.first() {
            Some(b'n') => visitor.visit_unit(),
            Some(b't') => visitor.visit_bool(true),
            Some(b'f') => visitor.visit_bool(false),
            Some(b'"') => visitor.visit_string(self.parsed()?),
            Some(b'[' | b'{') => self.members(visitor),
            _ => self.number(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.first() {
            Some(b'n') => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        // Types of serde_json that keep the text of a value are read by serde_json.
        if name.starts_with("$serde_json::private::") {
            return serde_json::Deserializer::from_str(self.json)
                .deserialize_newtype_struct(name, visitor)
                .map_err(Unfit::custom);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        match self.first() {
            Some(b'"') => {
                let name: StringDeserializer<Unfit> = self.parsed::<String>()?.into_deserializer();
                visitor.visit_enum(name)
            }
            Some(b'{') => self.members(Named(visitor)),
            _ => Err(Unfit::expected(one_of(variants))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

/// Reads an object whose only field names a variant of an enum.
struct Named<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Named<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(MapAccessDeserializer::new(map))
    }
}

/// Passes the members of a list or an object on to a visitor. Its value is the visitor's result, so that errors keep
/// their type.
struct Members<'p, V> {
    visitor: V,
    path: &'p Path<'p>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Members<'_, V> {
    type Value = Result<V::Value, Unfit>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<Self::Value, A::Error> {
        let path = self.path;
        let mut items = Items {
            from,
            path,
            next: 0,
        };
        let read = self.visitor.visit_seq(&mut items);
        // The parser wants all of it to be read.
        let mut left = 0;
        while items.from.next_element::<IgnoredAny>()?.is_some() {
            left += 1;
        }
        let all = items.next + left;
        Ok(read.and_then(|value| match left {
            0 => Ok(value),
            _ => Err(Unfit::invalid_length(all, &"fewer elements in array")),
        }))
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<Self::Value, A::Error> {
        let path = self.path;
        let mut fields = Fields {
            from,
            path,
            key: None,
        };
        let read = self.visitor.visit_map(&mut fields);
        let mut left = 0;
        if fields.key.is_some() {
            fields.from.next_value::<IgnoredAny>()?;
        }
        while fields
            .from
            .next_entry::<IgnoredAny, IgnoredAny>()?
            .is_some()
        {
            left += 1;
        }
        Ok(read.and_then(|value| match left {
            0 => Ok(value),
            _ => Err(Unfit::invalid_length(left, &"fewer elements in map")),
        }))
    }
}

struct Items<'p, A> {
    from: A,
    path: &'p Path<'p>,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = Unfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unfit> {
        let item: Option<&'de RawValue> = self.from.next_element().map_err(Unfit::custom)?;
        let Some(item) = item else {
            return Ok(None);
        };
        let (json, path) = (item.get(), Path::Index(self.path, self.next));
        self.next += 1;
        At { json, path: &path }.read(seed).map(Some)
    }
}

struct Fields<'p, A> {
    from: A,
    path: &'p Path<'p>,
    /// The field whose value was not read yet.
    key: Option<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = Unfit;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unfit> {
        self.key = self.from.next_key().map_err(Unfit::custom)?;
        let Some(text) = &self.key else {
            return Ok(None);
        };
        let path = Path::Field(self.path, text);
        Text { text, path: &path }.read(seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unfit> {
        let key = self.key.take().unwrap_or_default();
        let value: &'de RawValue = self.from.next_value().map_err(Unfit::custom)?;
        let (json, path) = (value.get(), Path::Field(self.path, &key));
        At { json, path: &path }.read(seed)
    }
}

/// A text that stands for a value: a parameter of a query, the name of a field or of a variant.
#[derive(Clone, Copy)]
struct Text<'p> {
    text: &'p str,
    path: &'p Path<'p>,
}

impl Text<'_> {
    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unfit> {
        seed.deserialize(self)
            .map_err(|unfit| unfit.at(|| self.path.of(quoted(self.text))))
    }
}

/// Returns the problem with a text that is not a whole number of the expected size.
fn not_whole(error: &ParseIntError) -> Unfit {
    Unfit::expected(match error.kind() {
        IntErrorKind::PosOverflow => "a smaller number",
        IntErrorKind::NegOverflow => "a larger number",
        _ => "a whole number",
    })
}

macro_rules! whole_numbers {
    ($($read:ident $visit:ident),*) => {
        $(
            fn $read<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
                let number = self.text.parse();
                visitor.$visit(number.map_err(|error| not_whole(&error))?)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Unfit;

    whole_numbers!(
        deserialize_i8 visit_i8, deserialize_i16 visit_i16, deserialize_i32 visit_i32, deserialize_i64 visit_i64,
        deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32, deserialize_u64 visit_u64
    );

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_str(self.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let value = self.text.parse();
        visitor.visit_bool(value.map_err(|_| Unfit::expected("true or false"))?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let number = self.text.parse();
        visitor.visit_f64(number.map_err(|_| Unfit::expected("a number"))?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        let name: StrDeserializer<'_, Unfit> = self.text.into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The parameters of a query.
struct Pairs<'q> {
    pairs: std::slice::Iter<'q, (String, String)>,
    /// The parameter whose value was not read yet.
    value: Option<&'q (String, String)>,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Unfit;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unfit> {
        self.value = self.pairs.next();
        let Some((text, _)) = self.value else {
            return Ok(None);
        };
        let path = Path::Field(&Path::Root, text);
        Text { text, path: &path }.read(seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unfit> {
        let (name, text) = self.value.ok_or_else(|| Unfit::custom("no parameter"))?;
        let path = Path::Field(&Path::Root, name);
        Text { text, path: &path }.read(seed)
    }
}
