#include "counters.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace machine_code {
namespace {

bool is_transcendental(std::string_view name) {
  for (const std::string_view start :
       {"V_EXP_", "V_LOG_", "V_RCP_", "V_RSQ_", "V_SQRT_", "V_SIN_", "V_COS_"}) {
    if (name.starts_with(start)) return true;
  }
  return name.starts_with("V_MUL_LO_U32") || name.starts_with("V_MUL_HI_") || name.starts_with("V_MAD_U64") ||
         name.starts_with("V_MAD_I64");
}

Unit unit_of_vector(std::string_view name) {
  if (name.find("WMMA") != name.npos) return Unit::matrix;
  if (name.find("F64") != name.npos) return Unit::wide;
  return is_transcendental(name) ? Unit::quarter : Unit::vector;
}

}  // namespace

Unit unit_of(Encoding encoding, const Operation& op) {
  switch (encoding) {
    case Encoding::sop1:
    case Encoding::sop2:
    case Encoding::sopk:
    case Encoding::sopc:
      return Unit::scalar;
    case Encoding::sopp:
      return Unit::control;
    case Encoding::smem:
      return Unit::scalar_load;
    case Encoding::ds:
      return Unit::shared;
    case Encoding::flat:
    case Encoding::global:
    case Encoding::scratch:
    case Encoding::mubuf:
      return op.stores ? Unit::store : Unit::load;
    case Encoding::vopd:
      return Unit::vector;
    default:
      return unit_of_vector(op.name);
  }
}

uint8_t bytes_of_access(std::string_view name) {
  for (const auto& [suffix, bytes] :
       {std::pair{"128", 16}, {"96", 12}, {"64", 8}, {"32", 4}, {"16", 2}, {"8", 1}}) {
    for (const char kind : {'B', 'U', 'I', 'F'}) {
      if (name.find(std::string{'_', kind} + suffix) != name.npos) return static_cast<uint8_t>(bytes);
    }
  }
  return 4;
}

int cycles_of(Unit unit, int generation) {
  switch (unit) {
    case Unit::quarter:
      return 4;
    case Unit::wide:
      return 16;
    case Unit::matrix:
      return generation >= 12 ? 16 : 32;
    default:
      return 1;
  }
}

void Counters::add(const Counters& block, double times) {
  for (size_t k = 0; k < executed.size(); ++k) executed[k] += times * block.executed[k];
  launches += block.launches;
  blocks += times * block.blocks;
  waves += times * block.waves;
  wave_cycles += times * block.wave_cycles;
  passes += times * block.passes;
  least_passes += times * block.least_passes;
  lines += times * block.lines;
  least_lines += times * block.least_lines;
  block_lines += times * block.block_lines;
  traffic_lines += block.traffic_lines;
  lds_bytes = std::max(lds_bytes, block.lds_bytes);
  scratch_bytes = block.scratch_bytes;
  vgprs = block.vgprs;
  wgp_mode = block.wgp_mode;
}

void print(const Counters& counters, std::FILE* file) {
  std::fprintf(file, "counted launches=%.0f blocks=%.0f waves=%.0f wave_cycles=%.0f passes=%.0f",
               counters.launches, counters.blocks, counters.waves, counters.wave_cycles, counters.passes);
  std::fprintf(file,
               " least_passes=%.0f lines=%.0f least_lines=%.0f block_lines=%.0f traffic_lines=%.0f lds=%.0f "
               "scratch=%.0f vgprs=%.0f wgp=%d",
               counters.least_passes, counters.lines, counters.least_lines, counters.block_lines,
               counters.traffic_lines, counters.lds_bytes, counters.scratch_bytes, counters.vgprs,
               counters.wgp_mode ? 1 : 0);
  for (size_t k = 0; k < kUnitNames.size(); ++k)
    std::fprintf(file, " %s=%.0f", kUnitNames[k], counters.executed[k]);
  std::fprintf(file, "\n");
}

Passes passes_of(uint32_t on, const uint64_t* address, uint32_t bytes) {
  constexpr uint64_t kBanks = 32;
  const auto words = std::max(1u, bytes / 4);
  const int lanes = static_cast<int>(32 / std::bit_ceil(words));
  Passes all;
  for (int first = 0; first < 32; first += lanes) {
    // Of each bank, the words that are asked for.
    std::array<std::array<uint64_t, 32>, kBanks> asked;
    std::array<int, kBanks> num_asked = {};
    for (int lane = first; lane < first + lanes; ++lane) {
      if ((on >> lane & 1) == 0) continue;
      for (uint32_t k = 0; k < words; ++k) {
        const uint64_t word = address[lane] / 4 + k, bank = word % kBanks;
        auto* begin = asked[bank].data();
        auto* end = begin + num_asked[bank];
        if (std::find(begin, end, word) == end) asked[bank][static_cast<size_t>(num_asked[bank]++)] = word;
      }
    }
    const int most = *std::ranges::max_element(num_asked);
    all.taken += most;
    all.least += most != 0;
  }
  return all;
}

Lines lines_of(uint32_t on, const uint64_t* address, uint32_t bytes, std::array<uint64_t, 128>& found) {
  std::array<uint64_t, 32> starts;
  size_t num_starts = 0, num_found = 0;
  const auto add_line = [&](uint64_t line) {
    if (std::find(found.begin(), found.begin() + num_found, line) == found.begin() + num_found)
      found[num_found++] = line;
  };
  for (int lane = 0; lane < 32; ++lane) {
    if ((on >> lane & 1) == 0) continue;
    if (std::find(starts.begin(), starts.begin() + num_starts, address[lane]) == starts.begin() + num_starts)
      starts[num_starts++] = address[lane];
    add_line(address[lane] / kLineBytes);
    add_line((address[lane] + bytes - 1) / kLineBytes);
  }
  return {static_cast<int>(num_found), static_cast<int>((num_starts * bytes + kLineBytes - 1) / kLineBytes)};
}

}  // namespace machine_code
