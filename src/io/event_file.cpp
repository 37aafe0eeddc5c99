#include "io/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

namespace hearth::io {
namespace {

/// A tag of 256 bytes and everything around it.
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

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

/// The head of a length-delimited protobuf field whose `size` bytes follow.
void append_field_head(std::string& out, char tag, size_t size) {
  out.push_back(tag);
  append_varint(out, size);
}

void append_field(std::string& out, char tag, std::string_view bytes) {
  append_field_head(out, tag, bytes.size());
  out.append(bytes);
}

size_t field_size(size_t num_bytes) {
  size_t size = 2 + num_bytes;
  for (size_t rest = num_bytes >> 7; rest > 0; rest >>= 7) ++size;
  return size;
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

void append_version_event(std::string& out, double time) {
  out.push_back('\x09');
  append(out, time);
  append_field(out, '\x1a', "brain.Event:2");
}

void append_session_event(std::string& out, double time, int64_t step) {
  out.push_back('\x09');
  append(out, time);
  out.push_back('\x10');
  append_varint(out, static_cast<uint64_t>(step));
  // SessionLog.status = START
  append_field(out, '\x3a', "\x08\x01");
}

void append_scalar_event(std::string& out, double time, int64_t step, std::string_view tag, float value) {
  const size_t scalar_bytes = field_size(tag.size()) + 1 + sizeof(value);
  out.push_back('\x09');
  append(out, time);
  out.push_back('\x10');
  append_varint(out, static_cast<uint64_t>(step));
  append_field_head(out, '\x2a', field_size(scalar_bytes));
  append_field_head(out, '\x0a', scalar_bytes);
  append_field(out, '\x0a', tag);
  out.push_back('\x15');
  append(out, value);
}

void append_image_event(std::string& out, double time, int64_t step, std::string_view tag, Extent size,
                        std::string_view png) {
  std::string image("\x08");
  append_varint(image, static_cast<uint64_t>(size.height));
  image.push_back('\x10');
  append_varint(image, static_cast<uint64_t>(size.width));
  append_field(image, '\x22', png);
  std::string value;
  append_field(value, '\x0a', tag);
  append_field(value, '\x22', image);
  std::string summary;
  append_field(summary, '\x0a', value);
  out.push_back('\x09');
  append(out, time);
  out.push_back('\x10');
  append_varint(out, static_cast<uint64_t>(step));
  append_field(out, '\x2a', summary);
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
