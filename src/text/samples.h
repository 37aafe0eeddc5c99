#pragma once

#include <optional>
#include <string>

#include "text/chat.h"
#include "text/conversation.h"
#include "text/jsonl.h"

namespace hearth::text {

/// Options of SampleReader.
struct SampleOptions {
  FormatOptions format = {};
  /// Source text of the chat template; template_name: its file, for messages. Without a template,
  /// prompt/completion data uses the built-in "plain", alpaca data uses "alpaca", and conversations are
  /// rejected.
  std::optional<std::string> chat_template = {};
  std::string template_name = {};
  ChatOptions chat = {};
  /// Ids put before and after each sample that is not rendered by `chat_template`: documents, and data
  /// rendered by the built-in templates.
  std::optional<int32_t> bos = {};
  std::optional<int32_t> eos = {};
  /// True if the loss also counts the messages before the assistant's answers.
  bool train_on_prompt = false;
};

/// A tokenized record of a data file. `rejected`: tokens of the rejected answer of a preference record.
struct Sample {
  int64_t line = 0;
  RecordFormat format = RecordFormat::text;
  MarkedText text;
  Tokens tokens;
  std::optional<Tokens> rejected;
  /// True if the document of this sample continues in the next sample.
  bool continues = false;
};

/// Converts the records of a data file to tokens. Training, the token cache and `hearth validate` all use it.
class SampleReader {
 public:
  /// Throws a UserError for inconsistent options, an unknown field name or an unsupported template. `file`
  /// and `tokenizer` must outlive the reader.
  SampleReader(const DataFile& file, const Tokenizer& tokenizer, SampleOptions options);

  /// Calls visit(sample) for each sample in the file's order. Unusable records are added to `faults`.
  void for_each(FunctionRef<void(const Sample&)> visit, Faults& faults) const;
  /// Checks each record without rendering or tokenizing it. Finds most errors in a fraction of the time of
  /// for_each().
  void check(Faults& faults) const;

  const DataFile& file() const { return file_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// Returns a text of all settings that affect the tokens, other than data and tokenizer files, for the key
  /// of the token cache.
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
