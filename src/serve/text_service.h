#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hub/model_folder.h"
#include "infer/batch_generator.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace hearth::serve {

/// Tells a client that the queue is full.
struct QueueIsFull {};

/// A request of a client, with the functions that the scheduler thread calls. None may throw or block.
struct TextJob {
  infer::GenerationRequest request;
  infer::BatchGenerator::Emit emit;
  std::function<bool()> is_wanted;                   ///< false: the client has left
  std::function<void(const std::string&)> on_fault;  ///< the answer ends with this message
};

/// A language model that generates answers for many clients. One thread owns the generator; all functions may
/// be called by any thread.
class TextService {
 public:
  /// Loads the model. `chat`: options of its chat template. Throws the UserErrors of BatchGenerator and of
  /// open_tokenizer().
  TextService(const hub::ModelFolder& model, text::ChatOptions chat, const infer::BatchOptions& options,
              size_t max_waiting);
  /// Ends running answers.
  ~TextService();
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  bool has_chat_template() const { return renderer_.has_value(); }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Returns the token ids of a text that the model continues.
  std::vector<int32_t> text_prompt(std::string_view text) const;
  /// Renders messages with the chat template. Throws a UserError if the model has none, or if the template
  /// rejects the messages.
  std::string render_chat(const text::Json& messages) const;
  std::vector<int32_t> chat_prompt(const text::Json& messages) const;
  /// Returns the bytes of a token within a text.
  std::string token_text(int32_t id) const;

  int64_t tokens_per_slot() const { return tokens_per_slot_; }
  /// Adds a request to the queue. Throws a UserError if its prompt is empty, too long or has unknown ids,
  /// QueueIsFull if `max_waiting` requests wait already.
  void submit(TextJob job);
  /// Returns the counters of the generator, with the requests that wait here.
  infer::BatchCounters counters() const;

 private:
  struct Running {
    std::shared_ptr<TextJob> job;
    bool has_ended = false;
  };
  void schedule();
  void start(std::shared_ptr<TextJob> job);
  void check(const infer::GenerationRequest& request) const;

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatRenderer> renderer_;
  std::vector<int32_t> anchor_;  ///< tokens before which a token is decoded by token_text()
  std::string anchor_text_;
  infer::BatchGenerator generator_;  ///< used by thread_ only, after the constructor
  int64_t num_slots_, tokens_per_slot_, vocab_size_;
  size_t max_waiting_;
  std::map<int64_t, Running> running_;  ///< by id of the generator; used by thread_ only

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<TextJob>> waiting_;
  infer::BatchCounters counters_;
  std::string fault_;  ///< reason why the generator cannot be used any more; empty: none
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace hearth::serve
