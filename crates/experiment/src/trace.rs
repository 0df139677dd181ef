//! A recorded video: the sending time and the size of each picture.
//!
//! One trace is embedded in the program, of `ffmpeg`'s test source (`scripts/trace` records
//! another): 1280x720 at 25 pictures per second, H.264 of constant quality with a key frame every
//! second, which is six times as long as the pictures in between.

use tailbound_units::{Bytes, Nanos};

const TEST_SOURCE: &str = include_str!("../../../experiments/shaped/testsrc.csv");

/// The first line of such a file.
const HEAD: [&str; 3] = ["time_ms", "bytes", "key"];

/// A picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picture {
    /// Sending time, from the video's beginning.
    pub at: Nanos,
    /// Size of the picture.
    pub size: Bytes,
    /// True if the picture can be shown without others.
    pub is_key: bool,
}

/// A video that starts again at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pictures: Vec<Picture>,
    length: Nanos,
}

/// Mistake in a trace file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file is no trace.
    #[error("a trace begins with the line {:?}; write one with scripts/trace", HEAD.join(","))]
    Head,
    /// A line is not a picture.
    #[error("line {line} is no picture; write milliseconds, bytes, and 0 or 1")]
    Line {
        /// Its number, from 1 on.
        line: u64,
    },
    /// Pictures are not in order.
    #[error("line {line}: it is not later than the one before")]
    Order {
        /// Its number.
        line: u64,
    },
    /// The file has no length: the length needs the distance of the last two pictures.
    #[error("a trace has at least two pictures")]
    Short,
}

impl Trace {
    /// Returns the trace of the test source.
    ///
    /// # Panics
    /// Never: the embedded trace is valid.
    pub fn test_source() -> Self {
        Self::parse(TEST_SOURCE).expect("it comes with the program")
    }

    /// Parses lines of a time in milliseconds, bytes, and 1 for a key frame.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.trim(csv::Trim::All).from_reader(text.as_bytes());
        if !reader.headers().is_ok_and(|head| head == HEAD.as_slice()) {
            return Err(TraceError::Head);
        }
        let mut pictures: Vec<Picture> = Vec::new();
        for record in reader.records() {
            let line = |at: Option<&csv::Position>| at.map_or(0, csv::Position::line);
            let record = record.map_err(|error| TraceError::Line {
                line: line(error.position()),
            })?;
            let line = line(record.position());
            let picture = record.deserialize(None).ok().and_then(picture);
            let picture = picture.ok_or(TraceError::Line { line })?;
            if pictures.last().is_some_and(|last| last.at >= picture.at) {
                return Err(TraceError::Order { line });
            }
            pictures.push(picture);
        }
        let [.., before, last] = pictures[..] else {
            return Err(TraceError::Short);
        };
        let length = last.at + (last.at - before.at);
        Ok(Self { pictures, length })
    }

    /// Returns the length of the video.
    pub const fn length(&self) -> Nanos {
        self.length
    }

    /// Returns its pictures, in order.
    pub fn pictures(&self) -> &[Picture] {
        &self.pictures
    }

    /// Returns the sending times of packets with this payload: all packets of a picture have the
    /// same time, and the last one is filled up.
    pub fn packets(&self, payload: Bytes) -> Vec<Nanos> {
        let each = self.pictures.iter().flat_map(|picture| {
            let packets = picture.size.0.div_ceil(payload.0);
            (0..packets).map(|_| picture.at)
        });
        each.collect()
    }
}

fn picture((millis, bytes, key): (u64, u64, u64)) -> Option<Picture> {
    // Within an hour, and no longer than a second at 100 Gbit/s.
    let is_sound = millis < 3_600_000 && bytes < 12_500_000_000 && key <= 1;
    is_sound.then_some(Picture {
        at: Nanos::from_millis(millis),
        size: Bytes(bytes),
        is_key: key == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_sources_key_frames_exceed_the_other_frames() {
        let trace = Trace::test_source();
        assert_eq!(trace.length(), Nanos::from_secs(20));
        assert_eq!(trace.pictures().len(), 500);
        let mean = |is_key: bool| {
            let all = trace.pictures().iter();
            let sizes: Vec<u64> = all
                .filter(|picture| picture.is_key == is_key)
                .map(|picture| picture.size.0)
                .collect();
            sizes.iter().sum::<u64>() / sizes.len() as u64
        };
        assert!(
            mean(true) > 3 * mean(false),
            "{} {}",
            mean(true),
            mean(false)
        );
        let keys = trace.pictures().iter().filter(|picture| picture.is_key);
        assert_eq!(keys.count(), 20);
    }

    #[test]
    fn pictures_are_split_into_packets_with_equal_send_times() {
        let trace = Trace::parse("time_ms,bytes,key\n0,2500,1\n40,900,0\n").expect("sound");
        let ms = Nanos::from_millis;
        assert_eq!(trace.packets(Bytes(1000)), [ms(0), ms(0), ms(0), ms(40)]);
        assert_eq!(trace.length(), ms(80));
    }

    #[test]
    fn trace_mistakes_are_named_with_their_line() {
        for (text, wrong) in [
            ("", "begins with the line"),
            ("0,1,1\n40,1,0\n", "begins with the line"),
            ("time_ms,bytes,key\n0,1,1\n", "at least two"),
            ("time_ms,bytes,key\n0,1,1\n40,x,0\n", "line 3 is no picture"),
            ("time_ms,bytes,key\n0,1,1\n40,1,2\n", "line 3"),
            ("time_ms,bytes,key\n0,1,1\n40,1,0,9\n", "line 3"),
            (
                "time_ms,bytes,key\n0,1,1\n0,1,0\n",
                "line 3: it is not later",
            ),
            ("time_ms,bytes,key\n0,1,1\n99999999,1,0\n", "line 3"),
        ] {
            let error = Trace::parse(text).expect_err(wrong).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
