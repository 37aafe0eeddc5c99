#include "text/samples.h"

#include <algorithm>

namespace hearth::text {
namespace {

ChatRenderer built_in(const char* name, const SampleOptions& options) {
  ChatOptions chat = options.chat;
  chat.bos_token.clear();
  return {Template(*built_in_template(name), fmt::format("built-in template '{}'", name)), std::move(chat)};
}

/// Work limit of rendering all records of a file; far above the work of real chat templates.
constexpr int64_t kBaseWork = 100'000'000;
constexpr int64_t kWorkPerByte = 2'000;

SampleOptions with_special_tokens(SampleOptions options, const Tokenizer& tokenizer) {
  options.chat.special_tokens = special_tokens_of(tokenizer);
  return options;
}

Json joined(const Json& a, const Json& b) {
  Json all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

}  // namespace

SampleReader::SampleReader(const DataFile& file, const Tokenizer& tokenizer, SampleOptions options)
    : file_(file),
      tokenizer_(tokenizer),
      options_(with_special_tokens(std::move(options), tokenizer)),
      encoder_(tokenizer),
      plain_(built_in("plain", options_)),
      alpaca_(built_in("alpaca", options_)) {
  check_format_options(options_.format);
  if (options_.chat_template) {
    given_.emplace(Template(*options_.chat_template, options_.template_name), options_.chat);
  }
}

const ChatRenderer& SampleReader::renderer_for(RecordFormat format) const {
  if (given_) return *given_;
  if (format == RecordFormat::prompt_completion) return plain_;
  if (format == RecordFormat::alpaca) return alpaca_;
  user_error(
      "{1}: {0} data needs a chat template, but the model has none; set data.template to 'chatml', 'alpaca', "
      "'plain' or a file",
      name_of(format), file_.path().string());
}

Sample SampleReader::document(const Entry& entry, const std::string& text, bool begins) const {
  Sample sample{.line = entry.line, .format = RecordFormat::text, .continues = entry.continues};
  sample.text.text = text;
  sample.text.trained = {{0, std::ssize(text)}};
  tokenizer_.encode(text, SpecialTokens::parsed, sample.tokens.ids);
  if (sample.tokens.ids.empty()) throw RecordError("empty document", "the document has no tokens");
  sample.tokens.trained.assign(sample.tokens.ids.size(), 1);
  add_ends(sample.tokens, begins ? options_.bos : std::nullopt,
           entry.continues ? std::nullopt : options_.eos);
  return sample;
}

Sample SampleReader::conversation(const Record& record, WorkBudget& budget) const {
  const ChatRenderer& renderer = renderer_for(record.format);
  Sample sample{.format = record.format};
  const bool prefers = record.format == RecordFormat::preference;
  const size_t first = prefers ? record.messages.size() : 0;
  sample.text = renderer.render(prefers ? joined(record.messages, record.chosen) : record.messages,
                                record.tools, first, &budget);
  sample.tokens = encoder_.encode(sample.text);
  if (prefers)
    sample.rejected = encoder_.encode(
        renderer.render(joined(record.messages, record.rejected), record.tools, first, &budget));
  finish(sample.tokens);
  if (sample.rejected) finish(*sample.rejected);
  return sample;
}

void SampleReader::finish(Tokens& tokens) const {
  if (options_.train_on_prompt) std::fill(tokens.trained.begin(), tokens.trained.end(), 1);
  if (!given_) add_ends(tokens, options_.bos, std::nullopt);
}

void SampleReader::for_each(FunctionRef<void(const Sample&)> visit, Faults& faults) const {
  bool begins = true;
  WorkBudget budget{.left = kBaseWork + kWorkPerByte * std::ssize(file_.bytes())};
  const auto deliver = [&](const Entry& entry) {
    if (file_.kind() == DataFile::Kind::text) {
      const Sample sample = document(entry, std::string(entry.text), begins);
      begins = !entry.continues;
      return visit(sample);
    }
    const Record record = read_record(parse_record(entry.text), options_.format);
    if (record.format == RecordFormat::text) return visit(document(entry, record.text, true));
    Sample sample = conversation(record, budget);
    sample.line = entry.line;
    visit(sample);
  };
  file_.for_each(deliver, faults);
}

void SampleReader::check(Faults& faults) const {
  if (file_.kind() == DataFile::Kind::text) return;
  file_.for_each([&](const Entry& entry) { read_record(parse_record(entry.text), options_.format); }, faults);
}

std::string SampleReader::fingerprint() const {
  Json parts{{"version", 3},
             {"format", name_of(options_.format.format)},
             {"fields", options_.format.fields},
             {"kind", static_cast<int>(file_.kind())},
             {"template", options_.chat_template.value_or("")},
             {"bos_token", options_.chat.bos_token},
             {"eos_token", options_.chat.eos_token},
             {"variables", options_.chat.variables},
             {"now", given_ && given_->asks_date() ? options_.chat.now.value_or(0) : 0},
             {"bos", options_.bos.value_or(-1)},
             {"eos", options_.eos.value_or(-1)},
             {"train_on_prompt", options_.train_on_prompt},
             {"train_on_generation_prompt", options_.chat.train_on_generation_prompt},
             {"unit", static_cast<int>(file_.unit())}};
  return parts.dump();
}

}  // namespace hearth::text
