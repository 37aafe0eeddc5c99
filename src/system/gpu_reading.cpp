#include "system/gpu_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hearth::system {

std::string throttle_words(uint32_t reasons) {
  constexpr std::pair<Throttle, const char*> kWords[] = {{Throttle::power, "power"},
                                                         {Throttle::current, "current"},
                                                         {Throttle::temperature, "temperature"},
                                                         {Throttle::external, "external"}};
  std::string words;
  for (const auto& [reason, word] : kWords) {
    if ((reasons & static_cast<uint32_t>(reason)) == 0) continue;
    words += words.empty() ? word : fmt::format(", {}", word);
  }
  return words;
}

std::array<char, 24> gpu_address(std::string_view text) {
  std::array<char, 24> address{};
  std::copy_n(text.begin(), std::min(text.size(), address.size() - 1), address.begin());
  return address;
}

std::string short_text(const GpuReading& reading) {
  std::string text;
  if (std::isfinite(reading.hottest())) text = fmt::format("{:.0f}C", reading.hottest());
  if (std::isfinite(reading.power)) text += fmt::format("{}{:.0f}W", text.empty() ? "" : " ", reading.power);
  return text;
}

}  // namespace hearth::system
