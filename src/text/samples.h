#pragma once

#include <optional>
#include <string>

#include "text/chat.h"
#include "text/conversation.h"
#include "text/jsonl.h"

namespace hearth::text {

struct SampleOptions {
  FormatOptions format = {};
  /// A chat template's source and where it comes from. Without one, prompt/completion data is rendered by the
  /// built-in "plain" and alpaca data by "alpaca"; conversations are refused.
  std::optional<std::string> chat_template = {};
  std::string template_name = {};
  ChatOptions chat = {};
  /// Put before and after what no chat template has rendered: documents, and data under "plain" and
  /// "alpaca".
  std::optional<int32_t> bos = {};
  std::optional<int32_t> eos = {};
  /// The loss counts what is said to the assistant too.
  bool train_on_prompt = false;
};

/// What one record has become. A preference has an answer that is rejected as well.
struct Sample {
  int64_t line = 0;
  RecordFormat format = RecordFormat::text;
  MarkedText text;
  Tokens tokens;
  std::optional<Tokens> rejected;
  /// The document continues in the next sample.
  bool continues = false;
};

/// Turns the records of a file into tokens: the one way from data to training, to the cache and to validate.
class SampleReader {
 public:
  /// UserError for options that do not fit: an unknown field name, a template that is not supported. What is
  /// passed must outlive the reader.
  SampleReader(const DataFile& file, const Tokenizer& tokenizer, SampleOptions options);

  /// Visits the samples in the file's order; records that cannot be used go into `faults`.
  void for_each(FunctionRef<void(const Sample&)> visit, Faults& faults) const;
  /// Reads every record without rendering or tokenizing it: most of what can be wrong, in a fraction of the
  /// time.
  void check(Faults& faults) const;

  const DataFile& file() const { return file_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// Everything but data and tokenizer that the tokens depend on, for the cache's key.
  std::string fingerprint() const;

 private:
  Sample document(const Entry& entry, const std::string& text, bool begins) const;
  Sample conversation(const Record& record, WorkBudget& budget) const;
  void finish(Tokens& tokens) const;
  const ChatRenderer& renderer_for(RecordFormat format) const;

  const DataFile& file_;
  const Tokenizer& tokenizer_;
  SampleOptions options_;
  MarkedEncoder encoder_;
  std::optional<ChatRenderer> given_;
  ChatRenderer plain_;
  ChatRenderer alpaca_;
};

}  // namespace hearth::text
