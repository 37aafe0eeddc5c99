#include <cctype>
#include <cstdlib>

#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "base/text.h"

namespace hearth::emu {
namespace {

constexpr int64_t kMinMemory = 64 << 10;
constexpr size_t kMaxGpus = 64;
constexpr std::string_view kLibrary = "library";

/// Removes and returns the text before the next `separator`, and removes the separator.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = trimmed(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

[[noreturn]] void refuse(std::string_view gpu) {
  user_error(
      "HEARTH_EMULATED: '{2}' is no emulated GPU; list at most {0} memory sizes of at least {1}, such as "
      "20GiB,20GiB, each optionally with link, fault, hang, refuse, lose, broken or integrated, such as "
      "'20GiB;link=6GB'",
      kMaxGpus, human_bytes(kMinMemory), gpu);
}

/// Parses an option of an emulated GPU such as "link=6GB", "fault=500", "hang=500", "refuse=2", "lose=5",
/// "broken=FILE" or "integrated" (see gpus_of). Returns false for any other text.
bool set_trouble(GpuSettings& gpu, std::string_view trouble) {
  const std::string_view name = take_part(trouble, '=');
  if (name == "integrated") return gpu.integrated = trouble.empty();
  if (name == "broken") {
    gpu.broken_while = trouble;
    return !trouble.empty();
  }
  if (trouble.empty() || std::isdigit(static_cast<unsigned char>(trouble.front())) == 0) return false;
  const std::optional<int64_t> amount = parse_bytes(trouble);
  if (!amount) return false;
  if (name == "link") gpu.link_bytes_per_second = static_cast<double>(*amount);
  if (name == "fault") gpu.faulty_launch = *amount;
  if (name == "hang") gpu.hanging_launch = *amount;
  if (name == "refuse") gpu.refused_allocation = *amount;
  if (name == "lose") gpu.lost_node = *amount;
  return name == "link" ? *amount > 0
                        : name == "fault" || name == "hang" || name == "refuse" || name == "lose";
}

/// Parses the settings of one GPU, such as "20GiB;link=6GB;fault=500".
GpuSettings gpu_of(std::string_view text) {
  const std::string_view whole = text;
  GpuSettings gpu{.memory_bytes = parse_bytes(take_part(text, ';')).value_or(0)};
  if (gpu.memory_bytes < kMinMemory) refuse(whole);
  while (!text.empty()) {
    if (!set_trouble(gpu, take_part(text, ';'))) refuse(whole);
  }
  return gpu;
}

}  // namespace

std::vector<GpuSettings> gpus_of(std::string_view sizes) {
  std::vector<GpuSettings> all;
  while (true) {
    const std::string_view size = trimmed(sizes.substr(0, sizes.find(',')));
    if (size == kLibrary && size.end() == sizes.end() && !all.empty()) {
      for (GpuSettings& gpu : all) gpu.library = GpuSettings::Library::right;
      return all;
    }
    if (all.size() == kMaxGpus) refuse(size);
    all.push_back(gpu_of(size));
    if (sizes.find(',') == std::string_view::npos) return all;
    sizes.remove_prefix(sizes.find(',') + 1);
  }
}

std::vector<GpuSettings>& gpus() {
  static std::vector<GpuSettings> all = [] {
    const char* const sizes = std::getenv("HEARTH_EMULATED");
    return sizes == nullptr ? std::vector<GpuSettings>(1) : gpus_of(sizes);
  }();
  return all;
}

}  // namespace hearth::emu
