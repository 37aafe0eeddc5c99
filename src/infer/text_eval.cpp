#include "infer/text_eval.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "infer/text_session.h"

namespace hearth::infer {
namespace {

constexpr std::string_view kMark = "####";

/// A record of the data as a question: the tokens before its last answer, and that answer's text.
struct Question {
  int64_t line = 0;
  std::vector<int32_t> prompt;
  std::string answer;
  std::vector<std::string> stop;  ///< text of the end-of-turn token; empty: none
};

/// Splits a sample into question and answer. The answer is the last contiguous range of trained tokens,
/// without the end-of-turn token.
Question question_of(const text::Sample& sample, const text::Tokenizer& tokenizer) {
  const std::vector<uint8_t>& trained = sample.tokens.trained;
  size_t end = trained.size();
  while (end > 0 && trained[end - 1] == 0) --end;
  size_t begin = end;
  while (begin > 0 && trained[begin - 1] != 0) --begin;
  const auto ids = std::span(sample.tokens.ids);
  Question question{.line = sample.line,
                    .prompt = {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(begin)}};
  if (end > begin && tokenizer.is_special(ids[end - 1]))
    question.stop.push_back(tokenizer.decode(ids.subspan(--end, 1)));
  question.answer = tokenizer.decode(ids.subspan(begin, end - begin));
  return question;
}

std::vector<Question> read_questions(const tasks::TextOptions& options, const fs::path& file, int64_t limit) {
  const tasks::TextSource source(options, models::read_decoder_config(options.model.config_file()));
  const text::DataFile data = source.open(file);
  const text::SampleReader reader = source.reader(data);
  std::vector<Question> questions;
  text::Faults faults;
  const auto visit = [&](const text::Sample& sample) {
    if (limit > 0 && std::ssize(questions) >= limit) return;
    questions.push_back(question_of(sample, reader.tokenizer()));
    if (questions.back().prompt.size() > 1 && sample.format != RecordFormat::text) return;
    user_error("{}:{}: exact match needs a record with a question and an answer, got {}", file.string(),
               sample.line, name_of(sample.format));
  };
  reader.for_each(visit, faults);
  if (faults.total() > 0 && options.data.bad_records != recipe::BadRecords::skip)
    user_error("{}", faults.sentences().front());
  if (questions.empty())
    user_error("{}: there are no questions; use records with a question and an answer", file.string());
  return questions;
}

/// Returns the number after the first "####", without commas and dollar signs; nullopt if there is none.
std::optional<std::string> number_in(std::string_view text) {
  const size_t mark = text.find(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trimmed(text.substr(mark + kMark.size()));
  std::string number(rest.substr(0, rest.find_first_not_of("-0123456789.,$")));
  std::erase_if(number, [](char c) { return c == ',' || c == '$'; });
  if (number.ends_with('.')) number.pop_back();
  if (number.empty()) return std::nullopt;
  return number;
}

}  // namespace

MatchResult match_answers(tasks::TextOptions text, const hub::ModelFolder& model, const fs::path& file,
                          const MatchOptions& options) {
  text.data.train_on_prompt = false;
  const std::vector<Question> questions = read_questions(text, file, options.limit);
  const auto longest = std::ranges::max_element(
      questions, {}, [](const Question& question) { return question.prompt.size(); });
  TextSession session(model, {.generator = {.slots = std::ssize(longest->prompt) + options.max_tokens,
                                            .compute = {.num_threads = options.num_threads}}});
  MatchResult result;
  for (const Question& question : questions) {
    const Answer found = session.ask(
        question.prompt, {.max_tokens = options.max_tokens, .stop = question.stop}, [](std::string_view) {});
    ++result.num_questions;
    if (same_answer(found.text, question.answer)) ++result.num_right;
  }
  return result;
}

bool same_answer(std::string_view found, std::string_view wanted) {
  const auto number = number_in(wanted);
  return number ? number_in(found) == number : trimmed(found) == trimmed(wanted);
}

}  // namespace hearth::infer
