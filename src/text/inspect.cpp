#include "text/inspect.h"

#include <algorithm>
#include <bit>

#include "base/text.h"

namespace hearth::text {
namespace {

constexpr size_t kShownStart = 600;
constexpr size_t kShownEnd = 200;
constexpr int64_t kBarWidth = 40;
constexpr size_t kShownFaults = 20;

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

/// Shortens a long text to its start and end, cut at character boundaries.
std::string shortened(std::string_view text) {
  if (text.size() <= kShownStart + kShownEnd) return printable(text);
  size_t start = kShownStart, end = text.size() - kShownEnd;
  while (start > 0 && is_continuation(text[start])) --start;
  while (end < text.size() && is_continuation(text[end])) ++end;
  return fmt::format("{} [... {} bytes ...] {}", printable(text.substr(0, start)), end - start,
                     printable(text.substr(end)));
}

std::string marked_run(const std::string& text, bool trained, Marking marking) {
  if (marking == Marking::signs) return trained ? "{+" + text + "+}" : text;
  return trained ? text : "\x1b[2m" + text + "\x1b[0m";
}

std::string shown(const Sample& sample, const Tokens& tokens, const SampleReader& reader, Marking marking) {
  const std::string suffix = sample.rejected ? ", chosen" : "";
  std::string text = fmt::format("{}:{} ({}{}, {} tokens)\n{}\n", printable(reader.file().path().string()),
                                 sample.line, name_of(sample.format), suffix, tokens.ids.size(),
                                 show_tokens(tokens, reader.tokenizer(), marking));
  if (!sample.rejected) return text;
  return text + fmt::format("rejected, {} tokens\n{}\n", sample.rejected->ids.size(),
                            show_tokens(*sample.rejected, reader.tokenizer(), marking));
}

void count(const Tokens& tokens, const InspectOptions& options, TextSummary& summary) {
  const auto length = std::ssize(tokens.ids);
  const auto trained =
      static_cast<int64_t>(std::count(tokens.trained.begin(), tokens.trained.end(), uint8_t{1}));
  summary.num_tokens += length;
  summary.num_trained += trained;
  summary.lengths.push_back(length);
  summary.num_overlong += options.context > 0 && length > options.context ? 1 : 0;
  summary.num_untrained += trained == 0 ? 1 : 0;
}

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string formats_line(const TextSummary& summary) {
  std::string text;
  for (const auto& [name, number] : summary.formats)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, name);
  return text.empty() ? "none" : text;
}

std::string warnings(const TextSummary& summary, const InspectOptions& options) {
  std::string text;
  if (summary.num_overlong > 0) {
    text += fmt::format("{} samples are longer than the context of {} tokens\n", summary.num_overlong,
                        options.context);
  }
  if (summary.num_untrained > 0)
    text += fmt::format("{} samples have no token to train on\n", summary.num_untrained);
  if (summary.num_open_turns > 0) {
    text +=
        fmt::format("{} turns of the assistant have no end-of-turn token: the model will not learn to stop\n",
                    summary.num_open_turns);
  }
  if (summary.num_without_reasoning > 0) text += unprinted_reasoning(summary.num_without_reasoning) + "\n";
  if (summary.num_equal > 0) {
    text += fmt::format("{} preferences have equal answers: there is nothing to learn from them\n",
                        summary.num_equal);
  }
  return text;
}

std::string faults_text(const Faults& faults) {
  if (faults.total() == 0) return "no bad records\n";
  std::string text = fmt::format("{} bad records:", faults.total());
  for (const auto& [kind, number] : faults.counts()) text += fmt::format(" {} {};", number, kind);
  text.back() = '\n';
  const size_t shown = std::min(faults.sentences().size(), kShownFaults);
  for (size_t i = 0; i < shown; ++i) text += "  " + printable(faults.sentences()[i]) + "\n";
  if (faults.total() > static_cast<int64_t>(shown))
    text += fmt::format("  and {} more\n", faults.total() - static_cast<int64_t>(shown));
  return text;
}

}  // namespace

std::string show_tokens(const Tokens& tokens, const Tokenizer& tokenizer, Marking marking) {
  std::string text;
  size_t done = 0;
  for (size_t first = 0; first < tokens.ids.size();) {
    size_t last = first;
    while (last < tokens.ids.size() && tokens.trained[last] == tokens.trained[first]) ++last;
    const std::string decoded = tokenizer.decode(std::span(tokens.ids).first(last));
    const std::string run = decoded.size() > done ? decoded.substr(done) : "";
    text += marked_run(shortened(run), tokens.trained[first] != 0, marking);
    done = decoded.size();
    first = last;
  }
  return text;
}

TextSummary summarize(const SampleReader& reader, const InspectOptions& options) {
  TextSummary summary;
  Tokens document;
  const auto visit = [&](const Sample& sample) {
    if (options.check) options.check(sample);
    document.ids.insert(document.ids.end(), sample.tokens.ids.begin(), sample.tokens.ids.end());
    document.trained.insert(document.trained.end(), sample.tokens.trained.begin(),
                            sample.tokens.trained.end());
    if (sample.continues) return;
    if (summary.num_samples++ < options.num_shown)
      summary.shown.push_back(shown(sample, document, reader, options.marking));
    summary.num_equal += sample.rejected && sample.rejected->ids == document.ids ? 1 : 0;
    ++summary.formats[std::string(name_of(sample.format))];
    summary.num_open_turns += sample.text.num_open_turns;
    summary.num_without_reasoning += sample.text.loses_reasoning ? 1 : 0;
    count(document, options, summary);
    if (sample.rejected) count(*sample.rejected, options, summary);
    document = {};
  };
  reader.for_each(visit, summary.faults);
  return summary;
}

std::string unprinted_reasoning(int64_t num_samples) {
  return fmt::format(
      "{} sample{} reasoning (reasoning_content, thinking) that the chat template does not print: the "
      "model does not learn it",
      num_samples, num_samples == 1 ? " has" : "s have");
}

std::string length_histogram(const std::vector<int64_t>& lengths) {
  std::map<int, int64_t> counts;
  for (const int64_t length : lengths)
    ++counts[static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(length - 1, 0))))];
  int64_t max_count = 1;
  for (const auto& [power, number] : counts) max_count = std::max(max_count, number);
  std::string text;
  if (counts.empty()) return text;
  for (int power = counts.begin()->first; power <= counts.rbegin()->first; ++power) {
    const int64_t number = counts[power];
    const auto bar = static_cast<size_t>((number * kBarWidth + max_count - 1) / max_count);
    const int64_t lowest = power == 0 ? 0 : (int64_t{1} << (power - 1)) + 1;
    text +=
        fmt::format("{:>8}..{:<8}|{:<40}| {}\n", lowest, int64_t{1} << power, std::string(bar, '#'), number);
  }
  return text;
}

std::string describe(const TextSummary& summary, const SampleReader& reader, const InspectOptions& options) {
  std::string text;
  for (const std::string& shown : summary.shown) text += shown + "\n";
  text += options.marking == Marking::signs ? "(the loss counts the text between {+ and +})\n"
                                            : "(the loss does not count dimmed text)\n";
  text += fmt::format("{}: {} samples ({})\n", printable(reader.file().path().string()), summary.num_samples,
                      formats_line(summary));
  text += fmt::format("{} tokens, {:.1f}% of them trained\n", summary.num_tokens,
                      percent(summary.num_trained, summary.num_tokens));
  if (!summary.lengths.empty()) text += "tokens per sample:\n" + length_histogram(summary.lengths);
  return text + warnings(summary, options) + printable(faults_text(summary.faults));
}

}  // namespace hearth::text
