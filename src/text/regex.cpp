#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "text/regex_syntax.h"

namespace hearth::text {
namespace {

// Limits of matching. Backtracking may take exponential time, and patterns come from downloaded files. Most
// matches need few steps, so JIT-compiled code runs first, with a limit of kQuickSteps. If that is exceeded,
// the interpreter repeats the match with limits that grow fourfold up to kMaxSteps + kMaxStepsPerByte per
// byte of text. Since a single step may scan the full text, MatchTime also limits the total CPU time per
// text.
constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kMaxShownBytes = 80;
constexpr uint32_t kQuickSteps = 64;
constexpr size_t kMaxSteps = 1'000'000;
constexpr size_t kMaxStepsPerByte = 4;
constexpr size_t kWindowBytes = 64;
constexpr double kSeconds = 0.5;
constexpr double kSecondsPerByte = 2e-6;
constexpr size_t kMinTimedBytes = 256;
constexpr size_t kStackBytes = 32 << 10;
constexpr size_t kMaxStackBytes = 1 << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create(1, nullptr)),
      quick_(pcre2_match_context_create(nullptr)),
      exact_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr)) {
  HEARTH_CHECK(data_ != nullptr && quick_ != nullptr && exact_ != nullptr);
  pair_ = pcre2_get_ovector_pointer(data_);
  pcre2_set_match_limit(quick_, kQuickSteps);
  pcre2_jit_stack_assign(quick_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(quick_);
  pcre2_match_context_free(exact_);
  pcre2_jit_stack_free(stack_);
}

MatchTime::MatchTime(size_t text_bytes)
    : allowed_(kSeconds + kSecondsPerByte * static_cast<double>(text_bytes)),
      counts_(text_bytes >= kMinTimedBytes) {}

void MatchTime::start() {
  if (!counts_) return;
  since_ = thread_seconds();
  runs_ = true;
}

void MatchTime::add(double weight) {
  spent_ += weight * (thread_seconds() - since_);
  runs_ = false;
}

bool MatchTime::is_over() {
  if (!runs_) {
    if (spent_ <= allowed_) start();
    return spent_ > allowed_;
  }
  return spent_ + thread_seconds() - since_ > allowed_;
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::string_view pattern, std::string_view where) : where_(where) {
  if (pattern.size() > kMaxPatternBytes) {
    user_error("{}: expected a regular expression of at most {} bytes, got {}", where, kMaxPatternBytes,
               pattern.size());
  }
  const std::string translated = pcre_of_oniguruma(pattern, where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  HEARTH_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t at = 0;
  code_.reset(pcre2_compile(
      units(translated), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error, &at,
      context.get()));
  if (!code_) {
    user_error("{}: the regular expression '{}' is not supported ({}); try another tokenizer", where,
               pattern.substr(0, kMaxShownBytes), message_of(error));
  }
  // JIT compilation may fail; the interpreter then computes the same matches, only slower.
  is_machine_code_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

void Regex::check(MatchTime& time, size_t text_bytes) const {
  if (time.is_over()) {
    user_error("{}: the regular expression takes too long on a text of {} bytes; split the text", where_,
               text_bytes);
  }
}

int Regex::match_quickly(std::string_view text, size_t begin, size_t last, RegexScratch& scratch) const {
  if (scratch.last_ != last) pcre2_set_offset_limit(scratch.quick_, last);
  scratch.last_ = last;
  const auto run = is_machine_code_ ? pcre2_jit_match : pcre2_match;
  return run(code_.get(), units(text), text.size(), begin, PCRE2_NO_UTF_CHECK, scratch.data_, scratch.quick_);
}

/// Searches for a match. Tries its possible start offsets in windows of kWindowBytes, and checks the time
/// limit between windows.
int Regex::match(std::string_view text, size_t from, RegexScratch& scratch, MatchTime& time) const {
  for (size_t begin = from;;) {
    const size_t last = std::min(begin | (kWindowBytes - 1), text.size());
    int found = match_quickly(text, begin, last, scratch);
    if (found > 0) return found;
    // Repeats the match in the interpreter with rising step limits. Checks the time before each, since a
    // single step may scan the full text.
    bool gave_up = found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_MATCHLIMIT;
    const size_t most = kMaxSteps + kMaxStepsPerByte * text.size();
    for (size_t steps = kQuickSteps; gave_up && steps < most; gave_up = found == PCRE2_ERROR_MATCHLIMIT) {
      steps = std::min({4 * steps, most, size_t{UINT32_MAX}});
      pcre2_set_match_limit(scratch.exact_, static_cast<uint32_t>(steps));
      check(time, text.size());
      pcre2_set_offset_limit(scratch.exact_, last);
      found = pcre2_match(code_.get(), units(text), text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          scratch.data_, scratch.exact_);
      check(time, text.size());
    }
    if (found != PCRE2_ERROR_NOMATCH || last == text.size()) return found;
    check(time, text.size());
    begin = last + 1;
    while (begin < text.size() && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) ++begin;
  }
}

std::optional<Range> Regex::find(std::string_view text, size_t from, RegexScratch& scratch,
                                 MatchTime& time) const {
  const int found = match(text, from, scratch, time);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    user_error("{}: the regular expression fails on a text of {} bytes: {}", where_, text.size(),
               message_of(found));
  }
  return Range{scratch.pair_[0], scratch.pair_[1]};
}

}  // namespace hearth::text
