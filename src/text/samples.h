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
  /// Source and origin of a chat template. Without one, prompt/completion data uses the built-in "plain",
  /// alpaca data uses "alpaca", and conversations are rejected.
  std::optional<std::string> chat_template = {};
  std::string template_name = {};
  ChatOptions chat = {};
  /// Ids put before and after samples that no given chat template rendered: documents, and data under "plain"
  /// and "alpaca".
  std::optional<int32_t> bos = {};
  std::optional<int32_t> eos = {};
  /// True if the loss also counts the messages to the assistant.
  bool train_on_prompt = false;
};

/// A tokenized record. Preference records have a rejected answer as well.
struct Sample {
  int64_t line = 0;
  RecordFormat format = RecordFormat::text;
  MarkedText text;
  Tokens tokens;
  std::optional<Tokens> rejected;
  /// True if the document continues in the next sample.
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
  /// Parses each record without rendering or tokenizing it. Finds most errors in a fraction of the time.
  void check(Faults& faults) const;

  const DataFile& file() const { return file_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// Returns a string of everything besides data and tokenizer that determines the tokens, for the cache key.
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
