#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace hearth::system {

/// Reasons for which a GPU runs below its maximum clocks, as it reports them.
enum class Throttle : uint32_t { power = 1, current = 2, temperature = 4, external = 8 };
/// Returns words for a set of Throttle bits: "power, temperature".
std::string throttle_words(uint32_t reasons);

/// Sensor readings of a GPU at one moment. An unknown value is NaN, an unknown count -1. Trivially copyable,
/// so that it can be in shared memory.
struct GpuReading {
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  std::array<char, 24> address{};                   ///< PCI address: "0000:03:00.0"
  float edge = kUnknown;                            ///< Celsius
  float junction = kUnknown;                        ///< Celsius, hottest point of the die
  float memory = kUnknown;                          ///< Celsius
  float edge_limit = kUnknown;                      ///< Celsius; above it, the GPU lowers its clocks
  float junction_limit = kUnknown;                  ///< Celsius
  float memory_limit = kUnknown;                    ///< Celsius
  float power = kUnknown, power_limit = kUnknown;   ///< Watts
  float clock = kUnknown, memory_clock = kUnknown;  ///< MHz
  float fan = kUnknown;                             ///< revolutions per minute
  float fan_percent = kUnknown;  ///< percent of the maximum speed, if revolutions are not reported
  float busy = kUnknown;         ///< utilization in percent
  int64_t memory_used_bytes = -1, memory_bytes = -1;
  int64_t pcie_errors = -1;    ///< number of PCIe replays and errors of the link
  int64_t memory_errors = -1;  ///< number of errors that ECC has detected
  uint32_t throttle = 0;       ///< set of Throttle bits

  std::string_view name() const { return address.data(); }
  /// Returns the temperature of the die in Celsius: junction if known, otherwise edge.
  float hottest() const { return junction == junction ? junction : edge; }
};
static_assert(std::is_trivially_copyable_v<GpuReading>);

/// Converts text to the type of GpuReading::address; text that is too long is truncated.
std::array<char, 24> gpu_address(std::string_view text);

/// Returns temperature and power as text such as "71C 290W"; empty if neither is known.
std::string short_text(const GpuReading& reading);

}  // namespace hearth::system
