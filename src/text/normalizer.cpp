#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/utf8.h"
#include "text/character_classes.h"

namespace hearth::text {
namespace {

int options_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case UnicodeForm::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case UnicodeForm::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case UnicodeForm::nfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  internal_error("no such form of Unicode");
}

/// True if a UTF-8 character that contains this byte may be changed by normalization: NFC changes no
/// character below U+0300, the other forms none below U+0080.
bool may_change(char byte, UnicodeForm form) {
  return static_cast<uint8_t>(byte) >= (form == UnicodeForm::nfc ? 0xCC : 0x80);
}
bool is_ascii(char byte) { return static_cast<uint8_t>(byte) < 0x80; }

int combining_class(utf8proc_int32_t value) { return utf8proc_get_property(value)->combining_class; }

/// Sorts each run of combining marks by combining class in O(n log n). utf8proc swaps neighbors instead,
/// which is quadratic.
void order_marks(std::vector<utf8proc_int32_t>& values) {
  const auto is_mark = [](utf8proc_int32_t value) { return combining_class(value) > 0; };
  for (auto begin = values.begin(); begin != values.end();) {
    begin = std::find_if(begin, values.end(), is_mark);
    const auto end = std::find_if_not(begin, values.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

/// Max number of code points in the decomposition of a character.
constexpr size_t kMaxDecomposed = 32;

std::vector<utf8proc_int32_t> decomposed(std::string_view part, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> values;
  size_t count = 0;
  for (int bounds = UTF8PROC_BOUNDCLASS_START; !part.empty();) {
    const Character next = first_character(part);
    values.resize(count + kMaxDecomposed);
    const utf8proc_ssize_t made = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.value),
                                                          &values[count], kMaxDecomposed, options, &bounds);
    HEARTH_CHECK(made >= 0 && static_cast<size_t>(made) <= kMaxDecomposed);
    count += static_cast<size_t>(made);
    part.remove_prefix(next.bytes);
  }
  values.resize(count);
  return values;
}

void append_mapped(std::string& out, std::string_view part, UnicodeForm form) {
  if (part.empty()) return;
  const auto options = static_cast<utf8proc_option_t>(options_of(form));
  std::vector<utf8proc_int32_t> values = decomposed(part, options);
  order_marks(values);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(values.data(), static_cast<utf8proc_ssize_t>(values.size()), options);
  if (length < 0) internal_error("utf8proc: {}", utf8proc_errmsg(length));
  values.resize(static_cast<size_t>(length));
  for (const utf8proc_int32_t value : values) append_utf8(out, static_cast<char32_t>(value));
}

/// Normalizes a text, except for characters that have no normal form in the Unicode version of Hugging Face's
/// tokenizers: those are copied unchanged.
void append_known(std::string& out, std::string_view part, UnicodeForm form) {
  size_t done = 0;
  for (size_t at = 0; at < part.size();) {
    const Character next = first_character(part.substr(at));
    if (has_new_normal_form(next.value)) {
      append_mapped(out, part.substr(done, at - done), form);
      out.append(part.substr(at, next.bytes));
      done = at + next.bytes;
    }
    at += next.bytes;
  }
  append_mapped(out, part.substr(done), form);
}

/// Normalizes only the parts of a run that may change, and copies the rest. Each part reaches from the ASCII
/// character before the changing characters to the next ASCII character; normalization never joins an ASCII
/// character with the text before it, so the parts are independent.
void append_composed(std::string& out, std::string_view run, UnicodeForm form) {
  while (!run.empty()) {
    const auto changes = [&](char byte) { return may_change(byte, form); };
    const auto at = std::find_if(run.begin(), run.end(), changes);
    if (at == run.end()) break;
    const auto begin = std::find_if(std::make_reverse_iterator(at), run.rend(), is_ascii);
    const auto end = std::find_if(at, run.end(), is_ascii);
    const auto kept = static_cast<size_t>(run.rend() - begin) - (begin == run.rend() ? 0 : 1);
    const auto mapped_end = static_cast<size_t>(end - run.begin());
    out.append(run.substr(0, kept));
    append_known(out, run.substr(kept, mapped_end - kept), form);
    run.remove_prefix(mapped_end);
  }
  out.append(run);
}

void append_lower(std::string& out, std::string_view run) {
  constexpr char32_t kCapitalDottedI = 0x130;
  while (!run.empty()) {
    const Character next = first_character(run);
    if (next.value == kCapitalDottedI) {
      out.append("i\xCC\x87");
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(next.value))));
    }
    run.remove_prefix(next.bytes);
  }
}

void append_replaced(std::string& out, std::string_view run, const Replace& step, RegexScratch& scratch,
                     size_t max_bytes) {
  size_t done = 0;
  for_each_match(step.pattern, run, scratch, [&](Range match) {
    out.append(run, done, match.begin - done).append(step.content);
    check_growth(out.size(), max_bytes);
    done = match.end;
  });
  out.append(run.substr(done));
}

/// Calls append(out, character) for each character for which matches(character) is true; copies the others to
/// `out`.
template <typename Append>
void map_characters(std::string& out, std::string_view run, bool (*matches)(char32_t), Append&& append) {
  while (!run.empty()) {
    const Character next = first_character(run);
    const std::string_view character = run.substr(0, next.bytes);
    if (matches(next.value)) {
      append(out, character);
    } else {
      out.append(character);
    }
    run.remove_prefix(next.bytes);
  }
}

/// Rewrites `text`: calls append(out, run) for each run of valid UTF-8, and copies other bytes to `out`.
template <typename Append>
void rewrite(std::string& text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  for_each_run(
      text, [&](std::string_view run) { append(out, run); },
      [&](std::string_view byte) { out.append(byte); });
  text = std::move(out);
}

void strip(std::string& text, Strip sides) {
  std::string_view rest = text;
  while (sides.left && !rest.empty() && is_space(first_character(rest))) {
    rest.remove_prefix(first_character(rest).bytes);
  }
  while (sides.right && !rest.empty() && is_space(last_character(rest))) {
    rest.remove_suffix(last_character(rest).bytes);
  }
  if (rest.size() < text.size()) text = std::string(rest);
}

/// Returns the first match of the pattern if it begins in the first `start` bytes of `text` and ends after
/// them; otherwise nothing.
std::optional<Range> match_across(const Pattern& pattern, std::string_view text, size_t start,
                                  RegexScratch& scratch) {
  if (start == 0) return std::nullopt;
  constexpr size_t kMaxBehind = 256;
  const std::string_view near = text.substr(0, complete_prefix(text.substr(0, start + kMaxBehind)));
  if (valid_prefix(near) != near.size()) return std::nullopt;
  MatchTime time(near.size());
  const std::optional<Range> match = pattern.find(near, 0, scratch, time);
  return match && match->begin < start && match->end > start ? match : std::nullopt;
}

struct Apply {
  std::string& text;
  RegexScratch& scratch;
  size_t max_bytes;

  void operator()(const Compose& step) const {
    const auto changes = [&](char byte) { return may_change(byte, step.form); };
    if (std::none_of(text.begin(), text.end(), changes)) return;
    rewrite(text, [&](std::string& out, std::string_view run) { append_composed(out, run, step.form); });
  }
  void operator()(const Lowercase&) const { rewrite(text, append_lower); }
  void operator()(const RemoveCharacters& step) const {
    change(step.one, [](std::string&, std::string_view) {});
  }
  void operator()(const CharactersToSpace& step) const {
    change(step.one, [](std::string& out, std::string_view) { out += ' '; });
  }
  void operator()(const SpaceAround& step) const {
    change(step.one, [](std::string& out, std::string_view character) {
      out.append(1, ' ').append(character).append(1, ' ');
    });
    check_growth(text.size(), max_bytes);
  }
  void operator()(const MapCharacters& step) const {
    rewrite(text, [&](std::string& out, std::string_view run) { step.map->append(out, run, max_bytes); });
  }
  void operator()(const Replace& step) const { step.apply(text, scratch, max_bytes); }
  void operator()(const Prepend& step) const {
    if (text.empty()) return;
    text.insert(0, step.content);
    check_growth(text.size(), max_bytes);
  }
  void operator()(const Strip& step) const { strip(text, step); }

 private:
  template <typename Append>
  void change(bool (*matches)(char32_t), Append&& append) const {
    rewrite(text, [&](std::string& out, std::string_view run) { map_characters(out, run, matches, append); });
  }
};

}  // namespace

void Replace::apply(std::string& text, RegexScratch& scratch, size_t max_bytes) const {
  if (!pattern.regex) return replace_all(text, pattern.literal, content, max_bytes);
  rewrite(text, [&](std::string& out, std::string_view run) {
    append_replaced(out, run, *this, scratch, max_bytes);
  });
}

void Normalizer::apply(std::string& text, RegexScratch& scratch) const {
  size_t start = 0;
  apply(text, start, scratch);
}

void Normalizer::apply(std::string& text, size_t& start, RegexScratch& scratch) const {
  const size_t max_bytes = max_grown_bytes(text.size());
  for (const NormalizerStep& step : steps_) {
    std::string head = text.substr(0, start);
    const auto* replace = std::get_if<Replace>(&step);
    const std::optional<Range> longer =
        replace != nullptr ? match_across(replace->pattern, text, start, scratch) : std::nullopt;
    if (longer) {
      head.resize(longer->begin);
    } else if (const auto* sides = std::get_if<Strip>(&step)) {
      strip(head, {.left = sides->left, .right = false});
    } else {
      std::visit(Apply{head, scratch, max_bytes}, step);
    }
    std::visit(Apply{text, scratch, max_bytes}, step);
    // If a character map has removed the start of the text, the next character counts as the start, as in
    // Hugging Face's tokenizers.
    const bool follows =
        head.empty() && start > 0 && !text.empty() && std::holds_alternative<MapCharacters>(step);
    start = follows ? first_character(text).bytes : std::min(head.size(), text.size());
  }
}

}  // namespace hearth::text
