#include <cctype>
#include <cstdlib>

#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "base/text.h"

namespace hearth::emu {
namespace {

constexpr int64_t kLeastMemory = 64 << 10;
constexpr size_t kMostCards = 64;
constexpr std::string_view kLibrary = "library";

/// Takes what stands in front of the next `separator`, and that, off `text`.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = trimmed(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

[[noreturn]] void refuse(std::string_view card) {
  user_error(
      "expected at most {} sizes from {} for HEARTH_EMULATED, each with link, fault, hang, refuse or broken "
      "at will, got '{}'; try HEARTH_EMULATED=20GiB,20GiB or '20GiB;link=6GB;fault=500'",
      kMostCards, human_bytes(kLeastMemory), card);
}

/// One of "link=6GB", "fault=500", "hang=500", "refuse=2", "broken=FILE"; false for what is none.
bool set_trouble(CardSettings& card, std::string_view trouble) {
  const std::string_view name = take_part(trouble, '=');
  if (name == "broken") {
    card.broken_while = trouble;
    return !trouble.empty();
  }
  if (trouble.empty() || std::isdigit(static_cast<unsigned char>(trouble.front())) == 0) return false;
  const std::optional<int64_t> amount = parse_bytes(trouble);
  if (!amount) return false;
  if (name == "link") card.link_bytes_per_second = static_cast<double>(*amount);
  if (name == "fault") card.faulty_launch = *amount;
  if (name == "hang") card.hanging_launch = *amount;
  if (name == "refuse") card.refused_allocation = *amount;
  return name == "link" ? *amount > 0 : name == "fault" || name == "hang" || name == "refuse";
}

/// Of "20GiB;link=6GB;fault=500".
CardSettings card_of(std::string_view text) {
  const std::string_view whole = text;
  CardSettings card{.memory_bytes = parse_bytes(take_part(text, ';')).value_or(0)};
  if (card.memory_bytes < kLeastMemory) refuse(whole);
  while (!text.empty()) {
    if (!set_trouble(card, take_part(text, ';'))) refuse(whole);
  }
  return card;
}

}  // namespace

std::vector<CardSettings> cards_of(std::string_view sizes) {
  std::vector<CardSettings> all;
  while (true) {
    const std::string_view size = trimmed(sizes.substr(0, sizes.find(',')));
    if (size == kLibrary && size.end() == sizes.end() && !all.empty()) {
      for (CardSettings& card : all) card.library = CardSettings::Library::right;
      return all;
    }
    if (all.size() == kMostCards) refuse(size);
    all.push_back(card_of(size));
    if (sizes.find(',') == std::string_view::npos) return all;
    sizes.remove_prefix(sizes.find(',') + 1);
  }
}

std::vector<CardSettings>& cards() {
  static std::vector<CardSettings> all = [] {
    const char* const sizes = std::getenv("HEARTH_EMULATED");
    return sizes == nullptr ? std::vector<CardSettings>(1) : cards_of(sizes);
  }();
  return all;
}

}  // namespace hearth::emu
