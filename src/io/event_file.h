#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/extent.h"
#include "base/file.h"

namespace hearth::io {

/// CRC-32C (Castagnoli), as TensorBoard masks it.
uint32_t masked_crc32c(std::string_view bytes);

/// Appends one record of an event file: length, its crc, the event, its crc.
void append_event_record(std::string& out, std::string_view event);
/// Appends an event with one scalar, in protobuf's wire form.
void append_scalar_event(std::string& out, double wall_time, int64_t step, std::string_view tag, float value);
/// The same with a picture, a PNG file's bytes.
void append_image_event(std::string& out, double wall_time, int64_t step, std::string_view tag, Extent size,
                        std::string_view png);
void append_version_event(std::string& out, double wall_time);
/// Appends one that has readers forget what earlier files have of `step` and later ones.
void append_session_event(std::string& out, double wall_time, int64_t step);

/// A TensorBoard event file in `folder`: events.out.tfevents.SECONDS.HOST.PID.0. Tags of up to 256 bytes are
/// written without allocation.
class EventFile {
 public:
  /// `first_step`: of a run that continues in the folder, the first it has not done; 0: it begins.
  explicit EventFile(const fs::path& folder, int64_t first_step = 0);
  void add_scalar(int64_t step, std::string_view tag, float value);
  void add_image(int64_t step, std::string_view tag, Extent size, std::string_view png);

 private:
  void write_record();

  FileWriter writer_;
  std::string event_;
  std::string record_;
};

}  // namespace hearth::io
