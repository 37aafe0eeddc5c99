#include <cstdlib>

#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "base/text.h"

namespace hearth::emu {
namespace {

constexpr int64_t kLeastMemory = 64 << 10;
constexpr size_t kMostCards = 64;
constexpr std::string_view kLibrary = "library";

}  // namespace

std::vector<CardSettings> cards_of(std::string_view sizes) {
  std::vector<CardSettings> all;
  while (true) {
    const std::string_view size = trimmed(sizes.substr(0, sizes.find(',')));
    if (size == kLibrary && size.end() == sizes.end() && !all.empty()) {
      for (CardSettings& card : all) card.library = CardSettings::Library::right;
      return all;
    }
    const int64_t bytes = parse_bytes(size).value_or(0);
    if (bytes < kLeastMemory || all.size() == kMostCards) {
      user_error(
          "expected at most {} sizes from {} for HEARTH_EMULATED, got '{}'; try HEARTH_EMULATED=20GiB,20GiB",
          kMostCards, human_bytes(kLeastMemory), size);
    }
    all.push_back({.memory_bytes = bytes});
    if (sizes.find(',') == std::string_view::npos) return all;
    sizes.remove_prefix(sizes.find(',') + 1);
  }
}

std::vector<CardSettings>& cards() {
  static std::vector<CardSettings> all = [] {
    const char* sizes = std::getenv("HEARTH_EMULATED");
    return sizes == nullptr ? std::vector<CardSettings>(1) : cards_of(sizes);
  }();
  return all;
}

}  // namespace hearth::emu
