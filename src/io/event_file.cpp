#include "io/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

namespace hearth::io {
namespace {

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

/// A length-delimited protobuf field.
void append_field(std::string& out, char tag, std::string_view bytes) {
  out.push_back(tag);
  append_varint(out, bytes.size());
  out.append(bytes);
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

std::string event_record(std::string_view event) {
  std::string record;
  append(record, static_cast<uint64_t>(event.size()));
  append(record, masked_crc32c(record));
  record.append(event);
  append(record, masked_crc32c(event));
  return record;
}

std::string version_event(double time) {
  std::string event(1, '\x09');
  append(event, time);
  append_field(event, '\x1a', "brain.Event:2");
  return event;
}

std::string scalar_event(double time, int64_t step, std::string_view tag, float value) {
  std::string scalar;
  append_field(scalar, '\x0a', tag);
  scalar.push_back('\x15');
  append(scalar, value);
  std::string summary;
  append_field(summary, '\x0a', scalar);
  std::string event(1, '\x09');
  append(event, time);
  event.push_back('\x10');
  append_varint(event, static_cast<uint64_t>(step));
  append_field(event, '\x2a', summary);
  return event;
}

EventFile::EventFile(const fs::path& folder) : writer_(file_path(folder)) {
  writer_.write(event_record(version_event(wall_time())));
}

void EventFile::add_scalar(int64_t step, std::string_view tag, float value) {
  writer_.write(event_record(scalar_event(wall_time(), step, tag, value)));
}

}  // namespace hearth::io
