#include "io/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "base/protobuf.h"

namespace hearth::io {
namespace {

/// Reserved bytes for one event: a tag of 256 bytes plus all other fields.
constexpr size_t kEventBytes = 512;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

template <typename T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

/// Appends the start of an event, its time, to `out` and returns a writer for its other fields.
ProtobufWriter event_at(std::string& out, double time) {
  ProtobufWriter event(out);
  event.real(1, time);
  return event;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

fs::path file_path(const fs::path& folder) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return folder /
         fmt::format("events.out.tfevents.{:010}.{}.{}.0", static_cast<int64_t>(wall_time()), host, getpid());
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ crc >> 8;
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

void append_event_record(std::string& out, std::string_view event) {
  const size_t begin = out.size();
  append(out, static_cast<uint64_t>(event.size()));
  append(out, masked_crc32c(std::string_view(out).substr(begin)));
  out.append(event);
  append(out, masked_crc32c(event));
}

void append_version_event(std::string& out, double time) { event_at(out, time).bytes(3, "brain.Event:2"); }

void append_session_event(std::string& out, double time, int64_t step) {
  constexpr int64_t kStart = 1;
  ProtobufWriter event = event_at(out, time);
  event.integer(2, step).message(7, [&] { event.integer(1, kStart); });
}

void append_scalar_event(std::string& out, double time, int64_t step, std::string_view tag, float value) {
  ProtobufWriter event = event_at(out, time);
  event.integer(2, step).message(5, [&] { event.message(1, [&] { event.bytes(1, tag).real(2, value); }); });
}

void append_image_event(std::string& out, double time, int64_t step, std::string_view tag, Extent size,
                        std::string_view png) {
  ProtobufWriter event = event_at(out, time);
  const auto image = [&] { event.integer(1, size.height).integer(2, size.width).bytes(4, png); };
  event.integer(2, step).message(5,
                                 [&] { event.message(1, [&] { event.bytes(1, tag).message(4, image); }); });
}

EventFile::EventFile(const fs::path& folder, int64_t first_step) : writer_(file_path(folder)) {
  event_.reserve(kEventBytes);
  record_.reserve(kEventBytes);
  append_version_event(event_, wall_time());
  write_record();
  if (first_step == 0) return;
  append_session_event(event_, wall_time(), first_step);
  write_record();
}

void EventFile::add_scalar(int64_t step, std::string_view tag, float value) {
  append_scalar_event(event_, wall_time(), step, tag, value);
  write_record();
}

void EventFile::add_image(int64_t step, std::string_view tag, Extent size, std::string_view png) {
  append_image_event(event_, wall_time(), step, tag, size, png);
  write_record();
}

void EventFile::write_record() {
  append_event_record(record_, event_);
  event_.clear();
  writer_.write(record_);
  record_.clear();
}

}  // namespace hearth::io
