#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace hearth::system {

/// Reason reported by a GPU for running below its maximum clocks.
enum class Throttle : uint32_t { power = 1, current = 2, temperature = 4, external = 8 };
/// Formats a set of Throttle bits: "power, temperature".
std::string throttle_words(uint32_t reasons);

/// Sensor readings of a GPU at one moment. Trivially copyable, for shared memory. Unknown values are NaN, or
/// -1 for counts.
struct GpuReading {
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  std::array<char, 24> address{};                   ///< PCI address: "0000:03:00.0"
  float edge = kUnknown;                            ///< Celsius
  float junction = kUnknown;                        ///< Celsius, hottest point of the die
  float memory = kUnknown;                          ///< Celsius
  float edge_limit = kUnknown;                      ///< Celsius, limit from which the GPU lowers its clocks
  float junction_limit = kUnknown;                  ///< Celsius
  float memory_limit = kUnknown;                    ///< Celsius
  float power = kUnknown, power_limit = kUnknown;   ///< Watts
  float clock = kUnknown, memory_clock = kUnknown;  ///< MHz
  float fan = kUnknown;                             ///< revolutions per minute
  float fan_percent = kUnknown;                     ///< percent of its maximum, if the speed is not reported
  float busy = kUnknown;                            ///< percent of the time
  int64_t memory_used_bytes = -1, memory_bytes = -1;
  int64_t pcie_errors = -1;    ///< PCIe replay and error count of the link
  int64_t memory_errors = -1;  ///< errors detected by ECC
  uint32_t throttle = 0;       ///< set of Throttle bits

  std::string_view name() const { return address.data(); }
  /// Returns the hottest known die temperature: junction, otherwise edge.
  float hottest() const { return junction == junction ? junction : edge; }
};
static_assert(std::is_trivially_copyable_v<GpuReading>);

/// Converts text to GpuReading::address, truncated if too long.
std::array<char, 24> gpu_address(std::string_view text);

/// Returns text such as "71C 290W"; empty if neither is known.
std::string short_text(const GpuReading& reading);

}  // namespace hearth::system
