#include "ui/log_line.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/json_reader.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxKeyBytes = 64;
constexpr size_t kMaxGpus = 64;

/// Returns the value of a number; NaN if it is out of the range of double.
double number_of(std::string_view text) {
  double value = 0;
  const bool is_read = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
  return is_read ? value : std::nan("");
}

bool is_number(char first) { return first == '-' || (first >= '0' && first <= '9'); }

void read_gpu(JsonReader& reader, size_t gpu, LogLine& line) {
  std::string reason;
  reader.read_object([&](const std::string& key) {
    if (key == "throttle" && reader.peek() == '"') {
      reason = reader.read_string();
    } else if (is_number(reader.peek()) && key.size() <= kMaxKeyBytes) {
      line.numbers.emplace_back(fmt::format("gpu/{}/{}", gpu, key), number_of(reader.read_number()));
    } else {
      reader.skip();
    }
  });
  line.throttled.emplace_back(gpu, std::move(reason));
}

void read_member(JsonReader& reader, const std::string& key, LogLine& line) {
  const char first = reader.peek();
  if (is_number(first)) {
    const double value = number_of(reader.read_number());
    if (key == "current_steps") {
      line.step = value >= 0 && value < 0x1p53 ? static_cast<int64_t>(value) : -1;
    } else if (key == "elapsed_time") {
      line.elapsed_seconds = value;
    } else if (key != "total_steps" && key != "percentage" && key.size() <= kMaxKeyBytes) {
      line.numbers.emplace_back(key, value);
    }
  } else if (key == "event" && first == '"') {
    line.event = reader.read_string();
  } else if (key == "gpu" && first == '[') {
    size_t gpu = 0;
    reader.read_array([&] {
      if (gpu < kMaxGpus && reader.peek() == '{') {
        read_gpu(reader, gpu, line);
      } else {
        reader.skip();
      }
      ++gpu;
    });
  } else {
    reader.skip();
  }
}

}  // namespace

bool parse_log_line(std::string_view text, LogLine& line) {
  line.step = -1;
  line.elapsed_seconds = -1;
  line.numbers.clear();
  line.event.clear();
  line.throttled.clear();
  try {
    JsonReader reader(text);
    if (reader.peek() != '{') return false;
    reader.read_object([&](const std::string& key) { read_member(reader, key, line); });
    reader.expect_end();
  } catch (const JsonFault&) {
    return false;
  }
  return line.step >= 0;
}

}  // namespace hearth::ui
