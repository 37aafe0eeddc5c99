#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/extent.h"
#include "base/file.h"

namespace hearth::io {

/// Returns the CRC-32C (Castagnoli), rotated and offset ("masked") as TensorBoard's event files require.
uint32_t masked_crc32c(std::string_view bytes);

/// Appends a record of an event file: length, CRC of the length, event, CRC of the event.
void append_event_record(std::string& out, std::string_view event);
/// Appends an event with one scalar in protobuf encoding. `wall_time`: seconds since 1970.
void append_scalar_event(std::string& out, double wall_time, int64_t step, std::string_view tag, float value);
/// Appends an event with one image. `size` in pixels; `png` has the bytes of a PNG file.
void append_image_event(std::string& out, double wall_time, int64_t step, std::string_view tag, Extent size,
                        std::string_view png);
/// Appends the event with the file version, which must be the first event of a file.
void append_version_event(std::string& out, double wall_time);
/// Appends a session-start event: readers then discard the events of earlier files from `step` on.
void append_session_event(std::string& out, double wall_time, int64_t step);

/// A TensorBoard event file in `folder`: events.out.tfevents.SECONDS.HOST.PID.0. Writing a scalar with a tag
/// of at most 256 bytes does not allocate.
class EventFile {
 public:
  /// `first_step`: first step that a resumed run computes; 0 for a new run.
  explicit EventFile(const fs::path& folder, int64_t first_step = 0);
  /// Writes a scalar or an image with the current time.
  void add_scalar(int64_t step, std::string_view tag, float value);
  void add_image(int64_t step, std::string_view tag, Extent size, std::string_view png);

 private:
  void write_record();

  FileWriter writer_;
  std::string event_;
  std::string record_;
};

}  // namespace hearth::io
