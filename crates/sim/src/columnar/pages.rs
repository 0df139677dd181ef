//! The bytes of a file and the pages of a column, in bounded memory.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;

/// What is in memory of a file at once, in bytes: of a page, packed or not.
const MOST_BYTES: usize = 64 << 20;
/// Of a page of texts, of which several are in memory at once.
const MOST_TEXTS: usize = 8 << 20;

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Numbers of so many bytes.
    Fixed(usize),
    /// Texts, each with its length before it.
    Texts,
}

impl Values {
    /// What one takes in a dictionary at least, in bytes.
    const fn least(self) -> usize {
        match self {
            Self::Fixed(width) => width,
            Self::Texts => 4,
        }
    }

    /// What a page of them takes at most.
    const fn most(self) -> usize {
        match self {
            Self::Fixed(_) => MOST_BYTES,
            Self::Texts => MOST_TEXTS,
        }
    }

    /// Whether a page written so takes no more memory than its bytes. Of texts that begin as the
    /// last one does a page may be many times as large as it is.
    const fn are_bounded(self, encoding: Encoding) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Texts => matches!(
                encoding,
                Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
            ),
        }
    }
}

/// A file of which no more is read at once.
#[derive(Debug)]
pub(super) struct Bounded<R>(pub(super) R);

impl<R: ChunkReader> Length for Bounded<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for Bounded<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64);
        if length > MOST_BYTES || end.is_none_or(|end| end > self.len()) {
            return Err(too_large(length));
        }
        self.0.get_bytes(start, length)
    }
}

/// The pages of a column. Unpacking is done here: a page is held against the
/// bound before memory is taken for it.
pub(super) struct Pages<R: ChunkReader> {
    packed: SerializedPageReader<Bounded<R>>,
    codec: Compression,
    of: Values,
}

impl<R: ChunkReader> Pages<R> {
    /// Those of a part of a column, of so many rows.
    pub(super) fn new(
        file: &Arc<Bounded<R>>,
        part: &ColumnChunkMetaData,
        rows: usize,
        of: Values,
    ) -> Result<Self> {
        let codec = part.compression();
        if !matches!(codec, Compression::UNCOMPRESSED | Compression::SNAPPY) {
            let what = format!("is compressed by {codec}: write it with SNAPPY or uncompressed");
            return Err(ParquetError::General(what));
        }
        let begins = part.dictionary_page_offset();
        let begins = begins.unwrap_or(part.data_page_offset());
        if begins < 0 || part.compressed_size() < 0 {
            return Err(ParquetError::General("has no place in the file".to_owned()));
        }
        let as_it_is = part.clone().into_builder();
        let as_it_is = as_it_is.set_compression(Compression::UNCOMPRESSED);
        let packed = SerializedPageReader::new(Arc::clone(file), &as_it_is.build()?, rows, None)?;
        Ok(Self { packed, codec, of })
    }

    /// A page that is packed from byte `from` on, if it is.
    fn unpacked(&self, bytes: Bytes, from: usize, is_packed: bool) -> Result<Bytes> {
        if from > bytes.len() {
            return Err(too_large(from));
        }
        let most = self.of.most();
        if self.codec == Compression::UNCOMPRESSED || !is_packed || from == bytes.len() {
            if bytes.len() > most {
                return Err(beyond(bytes.len(), most));
            }
            return Ok(bytes);
        }
        let packed = &bytes[from..];
        let failed = |error| ParquetError::External(Box::new(error));
        let length = snap::raw::decompress_len(packed).map_err(failed)?;
        if length > most {
            return Err(beyond(length, most));
        }
        let mut all = vec![0; from + length];
        all[..from].copy_from_slice(&bytes[..from]);
        let mut snappy = snap::raw::Decoder::new();
        let there = snappy.decompress(packed, &mut all[from..]);
        there.map_err(failed)?;
        Ok(all.into())
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.packed.get_next_page()? else {
            return Ok(None);
        };
        let encoding = page.encoding();
        if !self.of.are_bounded(encoding) {
            let what = format!("is encoded by {encoding}: write it plainly, or with a dictionary");
            return Err(ParquetError::General(what));
        }
        let (from, is_packed) = match page {
            Page::DataPageV2 {
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => (
                def_levels_byte_len as usize + rep_levels_byte_len as usize,
                is_compressed,
            ),
            Page::DataPage { .. } | Page::DictionaryPage { .. } => (0, true),
        };
        let (Page::DataPage { buf, .. }
        | Page::DataPageV2 { buf, .. }
        | Page::DictionaryPage { buf, .. }) = &mut page;
        *buf = self.unpacked(std::mem::take(buf), from, is_packed)?;
        if let Page::DictionaryPage {
            num_values, buf, ..
        } = &page
            && *num_values as usize > buf.len() / self.of.least()
        {
            let what = format!("has a dictionary of {num_values} values in {} B", buf.len());
            return Err(ParquetError::General(what));
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.packed.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.packed.skip_next_page()
    }
}

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn too_large(length: usize) -> ParquetError {
    beyond(length, MOST_BYTES)
}

fn beyond(length: usize, most: usize) -> ParquetError {
    ParquetError::General(format!(
        "has {length} B at once, beyond its end or more than {most}"
    ))
}
