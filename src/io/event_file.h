#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hearth::io {

/// CRC-32C (Castagnoli), as TensorBoard masks it.
uint32_t masked_crc32c(std::string_view bytes);

/// One record of an event file: length, its crc, the event, its crc.
std::string event_record(std::string_view event);
/// An event with one scalar, in protobuf's wire form.
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
std::string version_event(double wall_time);

/// A TensorBoard event file in `folder`: events.out.tfevents.SECONDS.HOST.PID.0.
class EventFile {
 public:
  explicit EventFile(const fs::path& folder);
  void add_scalar(int64_t step, std::string_view tag, float value);

 private:
  FileWriter writer_;
};

}  // namespace hearth::io
