#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace hearth::system {

/// Why a GPU runs slower than it could, as it says itself.
enum class Throttle : uint32_t { power = 1, current = 2, temperature = 4, external = 8 };
/// "power, temperature" of a set of them.
std::string throttle_words(uint32_t reasons);

/// What a GPU's sensors say at one moment, plain bytes that processes share. NaN, or -1 of a count: unknown.
struct GpuReading {
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  std::array<char, 24> address{};                   ///< on the PCI bus: "0000:03:00.0"
  float edge = kUnknown;                            ///< Celsius
  float junction = kUnknown;                        ///< Celsius, the hottest place of the die
  float memory = kUnknown;                          ///< Celsius
  float edge_limit = kUnknown;                      ///< Celsius, from which the GPU slows itself
  float junction_limit = kUnknown;                  ///< Celsius
  float memory_limit = kUnknown;                    ///< Celsius
  float power = kUnknown, power_limit = kUnknown;   ///< Watts
  float clock = kUnknown, memory_clock = kUnknown;  ///< MHz
  float fan = kUnknown;                             ///< revolutions per minute
  float fan_percent = kUnknown;                     ///< of its most, where revolutions are not told
  float busy = kUnknown;                            ///< percent of the time
  int64_t memory_used_bytes = -1, memory_bytes = -1;
  int64_t pcie_errors = -1;    ///< replays and errors of the link, counted by it
  int64_t memory_errors = -1;  ///< that ECC has found
  uint32_t throttle = 0;       ///< of Throttle

  std::string_view name() const { return address.data(); }
  /// The die's hottest temperature that is known: junction, else edge.
  float hottest() const { return junction == junction ? junction : edge; }
};
static_assert(std::is_trivially_copyable_v<GpuReading>);

/// `text` as a GpuReading's address, cut where it is too long.
std::array<char, 24> gpu_address(std::string_view text);

/// "71C 290W"; empty where neither is known.
std::string short_text(const GpuReading& reading);

}  // namespace hearth::system
