#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hearth::text {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr uint32_t kMaxSteps = 10'000'000;
constexpr size_t kStackBytes = 32 << 10;
constexpr size_t kMaxStackBytes = 1 << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr)) {
  HEARTH_CHECK(data_ != nullptr && context_ != nullptr);
  pcre2_set_match_limit(context_, kMaxSteps);
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
  pcre2_jit_stack_free(stack_);
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::string_view pattern, std::string_view where) : where_(where) {
  if (pattern.size() > kMaxPatternBytes) {
    user_error("{}: expected a regular expression of at most {} bytes, got {}", where, kMaxPatternBytes,
               pattern.size());
  }
  int error = 0;
  size_t at = 0;
  code_.reset(pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                            &error, &at, nullptr));
  if (!code_) {
    user_error("{}: expected a regular expression, got '{}': {} at byte {}", where, pattern,
               message_of(error), at);
  }
  // Without machine code the interpreter matches the same.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::optional<Range> Regex::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  const auto match = [&](uint32_t options) {
    return pcre2_match(code_.get(), units(text), text.size(), from, options, scratch.data_, scratch.context_);
  };
  int found = match(PCRE2_NO_UTF_CHECK);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    user_error("{}: the regular expression gives up on a text of {} bytes: {}", where_, text.size(),
               message_of(found));
  }
  const size_t* pair = pcre2_get_ovector_pointer(scratch.data_);
  // \K may set the start behind the end.
  return Range{std::min(pair[0], pair[1]), std::max(pair[0], pair[1])};
}

}  // namespace hearth::text
