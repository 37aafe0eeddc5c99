#include <algorithm>
#include <charconv>
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

void break_one(std::vector<CardSettings>& cards, std::string_view fault) {
  const size_t colon = fault.find(':');
  size_t number = 0;
  const char* const end = fault.data() + std::min(colon, fault.size());
  const auto [stop, error] = std::from_chars(fault.data(), end, number);
  if (colon == fault.npos || stop != end || error != std::errc() || number >= cards.size()) {
    user_error("expected one of {} cards and a file for HEARTH_EMULATED_FAULT, got '{}'; try 0:/tmp/broken",
               cards.size(), fault);
  }
  cards[number].broken_while = fault.substr(colon + 1);
}

std::vector<CardSettings>& cards() {
  static std::vector<CardSettings> all = [] {
    const char* const sizes = std::getenv("HEARTH_EMULATED");
    const char* const fault = std::getenv("HEARTH_EMULATED_FAULT");
    std::vector<CardSettings> made = sizes == nullptr ? std::vector<CardSettings>(1) : cards_of(sizes);
    if (fault != nullptr) break_one(made, fault);
    return made;
  }();
  return all;
}

}  // namespace hearth::emu
