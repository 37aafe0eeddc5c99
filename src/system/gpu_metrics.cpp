#include "system/gpu_metrics.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

namespace hearth::system {
namespace {

/// Size of the header: structure size (2 bytes), format revision and content revision (1 byte each).
constexpr size_t kHeadBytes = 4;

enum class Quantity : uint8_t {
  edge,
  junction,
  memory,
  power,
  busy,
  clock,
  memory_clock,
  fan,
  replays,
  throttle
};

struct Field {
  Quantity meaning;
  uint8_t bytes;  ///< size of the number in bytes
  uint16_t offset;
  float scale = 1;  ///< factor that converts the number to the unit of GpuReading
};

struct Version {
  uint8_t format, content;
  uint16_t min_bytes, max_bytes;  ///< allowed sizes of the structure
  std::span<const Field> fields;
};

using enum Quantity;

constexpr Field kV1_0[] = {{edge, 2, 16},  {junction, 2, 18}, {memory, 2, 20},       {busy, 2, 28},
                           {power, 2, 34}, {clock, 2, 54},    {memory_clock, 2, 58}, {fan, 2, 72}};
constexpr Field kV1_1[] = {{edge, 2, 4},   {junction, 2, 6}, {memory, 2, 8},        {busy, 2, 16},
                           {power, 2, 22}, {clock, 2, 54},   {memory_clock, 2, 58}, {fan, 2, 72}};
constexpr Field kV1_3[] = {{edge, 2, 4},          {junction, 2, 6}, {memory, 2, 8},
                           {busy, 2, 16},         {power, 2, 22},   {clock, 2, 54},
                           {memory_clock, 2, 58}, {fan, 2, 72},     {throttle, 8, 112}};
constexpr Field kV1_4[] = {{junction, 2, 4}, {memory, 2, 6},  {power, 2, 10},        {busy, 2, 12},
                           {replays, 8, 88}, {clock, 2, 240}, {memory_clock, 2, 280}};
constexpr Field kV1_5[] = {{junction, 2, 4},  {memory, 2, 6},  {power, 2, 10},        {busy, 2, 12},
                           {replays, 8, 152}, {clock, 2, 312}, {memory_clock, 2, 352}};
/// Fields of early revisions of version 1.6, which still contained the utilization of the video engines.
constexpr Field kV1_6Early[] = {{junction, 2, 4},  {memory, 2, 6},  {power, 2, 10},        {busy, 2, 12},
                                {replays, 8, 176}, {clock, 2, 336}, {memory_clock, 2, 376}};
constexpr Field kV1_6[] = {{junction, 2, 4},  {memory, 2, 6},  {power, 2, 10},        {busy, 2, 12},
                           {replays, 8, 104}, {clock, 2, 264}, {memory_clock, 2, 304}};
constexpr Field kV1_7[] = {{junction, 2, 4},  {memory, 2, 6},  {power, 2, 10},        {busy, 2, 12},
                           {replays, 8, 112}, {clock, 2, 296}, {memory_clock, 2, 336}};
/// Fields for integrated GPUs, which use hundredths of a degree and milliwatts.
constexpr Field kV2_0[] = {
    {edge, 2, 16, 0.01F}, {busy, 2, 40}, {power, 2, 44, 0.001F}, {clock, 2, 80}, {memory_clock, 2, 84}};
constexpr Field kV2_1[] = {
    {edge, 2, 4, 0.01F}, {busy, 2, 28}, {power, 2, 40, 0.001F}, {clock, 2, 76}, {memory_clock, 2, 80}};
constexpr Field kV2_2[] = {{edge, 2, 4, 0.01F}, {busy, 2, 28},         {power, 2, 40, 0.001F},
                           {clock, 2, 76},      {memory_clock, 2, 80}, {throttle, 8, 120}};
constexpr Field kV3_0[] = {
    {edge, 2, 4, 0.01F}, {busy, 2, 42}, {power, 4, 112, 0.001F}, {clock, 2, 174}, {memory_clock, 2, 186}};

/// In versions 1.6 to 1.8 the size varies, because the part after these fields depends on the number of
/// partitions.
constexpr uint16_t kAnyBytes = 0xffff;
constexpr Version kVersions[] = {
    {1, 0, 80, 80, kV1_0},         {1, 1, 96, 96, kV1_1},         {1, 2, 104, 104, kV1_1},
    {1, 3, 120, 120, kV1_3},       {1, 4, 288, 288, kV1_4},       {1, 5, 360, 360, kV1_5},
    {1, 6, 384, 384, kV1_6Early},  {1, 6, 385, kAnyBytes, kV1_6}, {1, 7, 345, kAnyBytes, kV1_7},
    {1, 8, 345, kAnyBytes, kV1_7}, {2, 0, 120, 120, kV2_0},       {2, 1, 120, 120, kV2_1},
    {2, 2, 128, 128, kV2_2},       {2, 3, 152, 152, kV2_2},       {2, 4, 168, 168, kV2_2},
    {3, 0, 264, 264, kV3_0}};

/// Bits of the throttle status that is the same for all GPUs. The hotspot bit is ignored, because it is
/// always set on Navi 31 and Navi 48.
constexpr uint64_t kHotspotBit = uint64_t{1} << 36;
constexpr uint64_t kPowerBits = 0xff, kCurrentBits = uint64_t{0xff} << 16;
constexpr uint64_t kTemperatureBits = (uint64_t{0xfff} << 32) & ~kHotspotBit;
constexpr uint64_t kExternalBits = uint64_t{0xf} << 44;

constexpr uint64_t kMaxReplays = std::numeric_limits<int64_t>::max();

uint32_t reasons_of(uint64_t status) {
  uint32_t reasons = 0;
  const auto add = [&](uint64_t bits, Throttle reason) {
    if ((status & bits) != 0) reasons |= static_cast<uint32_t>(reason);
  };
  add(kPowerBits, Throttle::power);
  add(kCurrentBits, Throttle::current);
  add(kTemperatureBits, Throttle::temperature);
  add(kExternalBits, Throttle::external);
  return reasons;
}

const Version* find_version(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return nullptr;
  uint16_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  const auto format = static_cast<uint8_t>(bytes[2]), content = static_cast<uint8_t>(bytes[3]);
  const auto* const found = std::ranges::find_if(kVersions, [&](const Version& version) {
    return version.format == format && version.content == content && size >= version.min_bytes &&
           size <= version.max_bytes;
  });
  return found == std::end(kVersions) || bytes.size() < size ? nullptr : found;
}

/// Returns the number in the field; nullopt if all of its bits are set, which means that it is not available.
std::optional<uint64_t> number_at(std::string_view bytes, const Field& place) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + place.offset, place.bytes);
  const uint64_t absent = ~uint64_t{0} >> (64 - 8 * place.bytes);
  return number == absent ? std::nullopt : std::optional(number);
}

float* member_of(GpuReading& reading, Quantity meaning) {
  switch (meaning) {
    case edge:
      return &reading.edge;
    case junction:
      return &reading.junction;
    case memory:
      return &reading.memory;
    case power:
      return &reading.power;
    case busy:
      return &reading.busy;
    case clock:
      return &reading.clock;
    case memory_clock:
      return &reading.memory_clock;
    case fan:
      return &reading.fan;
    case replays:
    case throttle:
      break;
  }
  return nullptr;
}

}  // namespace

std::optional<GpuReading> parse_gpu_metrics(std::string_view bytes) {
  const Version* const version = find_version(bytes);
  if (version == nullptr) return std::nullopt;
  GpuReading reading;
  for (const Field& place : version->fields) {
    const auto number = number_at(bytes, place);
    if (!number) continue;
    if (place.meaning == throttle) {
      reading.throttle = reasons_of(*number);
    } else if (place.meaning == replays) {
      reading.pcie_errors = static_cast<int64_t>(std::min(*number, kMaxReplays));
    } else {
      *member_of(reading, place.meaning) = static_cast<float>(*number) * place.scale;
    }
  }
  // Some kernel versions report hundredths of a percent instead of percent.
  if (reading.busy > 100) reading.busy /= 100;
  return reading;
}

}  // namespace hearth::system
