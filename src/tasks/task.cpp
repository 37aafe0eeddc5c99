#include "tasks/task.h"

#include "base/error.h"

namespace hearth::tasks {

engine::MicroBatch LookaheadStream::next() {
  const engine::MicroBatch batch = next_batch_ ? *next_batch_ : stream_->next();
  next_batch_.reset();
  return batch;
}

const engine::MicroBatch* LookaheadStream::peek() {
  try {
    if (!next_batch_) next_batch_ = stream_->next();
  } catch (const UserError&) {
    return nullptr;
  }
  return &*next_batch_;
}

std::vector<int64_t> Task::eval_sizes(int64_t batch) const { return batch_sizes(num_eval_rows(), batch); }

std::string left_out_text(const Task& task) {
  const int64_t count = task.num_data_rows() - task.num_rows();
  return count == 0 ? "" : fmt::format("; each epoch leaves out {} (data.drop_last)", count);
}

std::vector<int64_t> batch_sizes(int64_t count, int64_t batch) {
  std::vector<int64_t> sizes;
  if (count >= batch) sizes.push_back(batch);
  if (count % batch != 0) sizes.push_back(count % batch);
  return sizes;
}

}  // namespace hearth::tasks
