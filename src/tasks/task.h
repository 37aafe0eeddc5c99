#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "io/report.h"

namespace hearth::tasks {

/// A picture that an evaluation has made, kept in the run folder as samples/step-STEP-NAME.png.
struct MadePicture {
  std::string name;  ///< letters and digits
  data::Image image;
};
inline constexpr const char* kSamplesFolder = "samples";

/// Results on held-out data.
struct Evaluation {
  double loss = 0;   ///< mean over samples
  double score = 0;  ///< what runs are compared by: higher is better
  /// Further numbers for the log: "accuracy", 0.9851.
  std::vector<std::pair<const char*, double>> metrics;
  std::vector<int64_t> confusion;  ///< [true][predicted], where there are classes
  std::vector<io::SamplePrediction> samples;
  std::vector<io::ReportTable> tables;
  std::vector<io::ImageStrip> strips;
  std::vector<MadePicture> pictures;
};

/// Training data in the order of the epochs.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// The next micro-batch; valid until the next-but-one call. UserError for a sample that cannot be read.
  virtual engine::MicroBatch next() = 0;
};

/// A stream that can look at its next micro-batch.
class AheadStream : public BatchStream {
 public:
  explicit AheadStream(std::unique_ptr<BatchStream> stream) : stream_(std::move(stream)) {}
  engine::MicroBatch next() override;
  /// Null where it cannot be read, which next() then says. Valid until the next-but-one of them all.
  const engine::MicroBatch* peek();

 private:
  std::unique_ptr<BatchStream> stream_;
  std::optional<engine::MicroBatch> ahead_;
};

/// What a run trains on and is judged by: its data, its objective, its evaluation. Rows are what
/// micro-batches are counted in (images, or rows of tokens); samples are what the loss is a mean over.
class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t num_rows() const = 0;  ///< rows of an epoch
  /// Number of rows in the training data. An epoch may leave out a smaller last micro-batch.
  virtual int64_t num_data_rows() const { return num_rows(); }
  virtual int64_t num_eval_rows() const = 0;  ///< held out
  /// Samples in `count` rows of the training data from `from` on.
  virtual int64_t num_samples(const data::LoaderPosition& from, int64_t count) const = 0;
  /// Lengths that rows of tokens have, longest first; empty: the objective's own.
  virtual std::vector<int64_t> row_lengths() const { return {}; }
  /// Sizes of the micro-batches that evaluate() asks for.
  virtual std::vector<int64_t> eval_sizes(int64_t batch) const;
  /// Whether begin() evaluates rows of the training data.
  virtual bool evaluates_training_rows() const { return false; }
  using Say = std::function<void(const std::string&)>;
  /// Before a row is read: makes what has to be made of the data, on the device that trains, which nothing
  /// else uses meanwhile; it may take long, so that it tells people.
  virtual void prepare(const Say&) {}
  /// Whether nothing is left to make.
  virtual bool is_prepared() const { return true; }
  /// Takes what a run needs to know of its first weights; it may take long, so that it tells people.
  virtual void begin(engine::Engine&, const Say&) {}
  /// Writes that into the run folder, and reads it when the run continues. UserError where it is not there or
  /// belongs to other data.
  virtual void save_beginning(const fs::path&) const {}
  virtual void resume(const fs::path&) {}
  /// From where a step begins, the share's micro-batches; an epoch has one of them at least.
  virtual std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                            const data::LoaderShare& share) const = 0;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from) const { return open(from, {}); }
  /// Judges the present weights; at most `num_shown` samples are kept for people to look at.
  virtual Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const = 0;
  /// Class names of an image task, by class index; empty: none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// A few letters for a sample.
  virtual const char* unit() const = 0;
  /// What the data is, for the start of a run: "70 training and 32 validation images".
  virtual std::string describe() const = 0;
  /// What people should know before they believe the results; empty: nothing.
  virtual std::string warning() const { return ""; }
  /// Returns a warning about training on this data; empty if there is none.
  virtual std::string training_warning() const { return ""; }
  /// A score for people: "accuracy 98.51%".
  virtual std::string score_text(double score) const = 0;
  /// What an evaluation tells people after its loss.
  virtual std::string evaluation_text(const Evaluation& found) const { return score_text(found.score); }
  /// Adds what report.html shows of the data and the last evaluation; the log holds the curves.
  virtual void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const = 0;
  /// What a finished run says last, for scripts to read, of its best evaluation: "mIoU: 0.9512"; empty:
  /// nothing.
  virtual std::string last_line(const fs::path& /*log*/) const { return ""; }
  /// Writes the tables that others' tools expect of a run, from its log after an evaluation.
  virtual void write_tables(const fs::path& /*folder*/, int64_t /*steps_per_epoch*/) const {}
  /// Files that belong beside the weights of a finished run, which are saved in that dtype.
  virtual void save_companions(const fs::path&, DType) const {}
  /// Bytes of input memory beside the arena.
  virtual int64_t staging_bytes() const = 0;
};

/// Returns "; each epoch leaves out 1 (data.drop_last)" with the number of training images that an epoch
/// leaves out; empty if none.
std::string left_out_text(const Task& task);

/// Sizes of the micro-batches that cover `count` rows.
std::vector<int64_t> batch_sizes(int64_t count, int64_t batch);

}  // namespace hearth::tasks
