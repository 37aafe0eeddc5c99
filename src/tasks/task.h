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

/// An image that an evaluation generated, written to the run folder as samples/step-STEP-NAME.png.
struct SampleImage {
  std::string name;  ///< letters and digits
  data::Image image;
};
inline constexpr const char* kSamplesFolder = "samples";

/// Results on held-out data.
struct Evaluation {
  double loss = 0;   ///< mean over samples
  double score = 0;  ///< selects the best weights: higher is better
  /// Further metrics for the log, such as {"accuracy", 0.9851}.
  std::vector<std::pair<const char*, double>> metrics;
  std::vector<int64_t> confusion;  ///< [true][predicted]; empty: the task has no classes
  /// Parts of report.html: predictions of samples, tables, rows of images.
  std::vector<io::SamplePrediction> samples;
  std::vector<io::ReportTable> tables;
  std::vector<io::ImageStrip> strips;
  /// Generated images, for the samples folder.
  std::vector<SampleImage> images;
};

/// Training data as micro-batches, epoch after epoch.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Returns the next micro-batch, in staging memory that stays valid until the next-but-one call. UserError
  /// if a sample cannot be read.
  virtual engine::MicroBatch next() = 0;
};

/// A stream with one micro-batch of lookahead.
class LookaheadStream : public BatchStream {
 public:
  explicit LookaheadStream(std::unique_ptr<BatchStream> stream) : stream_(std::move(stream)) {}
  engine::MicroBatch next() override;
  /// Returns the micro-batch that next() will return; null if it cannot be read (next() then throws). The
  /// memory is valid as for next().
  const engine::MicroBatch* peek();

 private:
  std::unique_ptr<BatchStream> stream_;
  std::optional<engine::MicroBatch> next_batch_;
};

/// The data, objective and evaluation of a run. A row is the unit of micro-batches (an image, or a row of
/// tokens); a sample is the unit that the loss is averaged over.
class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t num_rows() const = 0;  ///< rows of an epoch
  /// Number of rows in the training data. An epoch may leave out a smaller last micro-batch.
  virtual int64_t num_data_rows() const { return num_rows(); }
  virtual int64_t num_eval_rows() const = 0;  ///< rows of an evaluation
  /// Returns the number of samples in `count` training rows from position `from` on.
  virtual int64_t num_samples(const data::LoaderPosition& from, int64_t count) const = 0;
  /// Returns the row lengths (BatchShape::row_length) that occur, longest first; empty: only the objective's
  /// default.
  virtual std::vector<int64_t> row_lengths() const { return {}; }
  /// Returns the sizes of the micro-batches that evaluate() runs, for compilation. `batch`: rows of a
  /// training micro-batch.
  virtual std::vector<int64_t> eval_sizes(int64_t batch) const;
  /// True if begin() evaluates training rows, so that their row lengths need an evaluation program.
  virtual bool evaluates_training_rows() const { return false; }
  using Say = std::function<void(const std::string&)>;
  /// Precomputes data (latents, embeddings) on the training device, before the run allocates it. May take
  /// long; reports progress with `say`.
  virtual void prepare(const Say&) {}
  /// True if prepare() has nothing to compute.
  virtual bool is_prepared() const { return true; }
  /// Computes what the task needs from the initial weights (DPO: reference log-probabilities). May take long;
  /// reports progress with `say`.
  virtual void begin(engine::Engine&, const Say&) {}
  /// Write the results of begin() to the run folder, and read them when the run is resumed. UserError if they
  /// are missing or belong to other data.
  virtual void save_initial_results(const fs::path&) const {}
  virtual void resume(const fs::path&) {}
  /// Opens the training data at `from`, the start of a step, for one worker. An epoch must have at least one
  /// micro-batch of the worker's share.
  virtual std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                            const data::LoaderShare& share) const = 0;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from) const { return open(from, {}); }
  /// Evaluates the current weights on the held-out rows; at most `num_shown` samples are stored for the
  /// report.
  virtual Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const = 0;
  /// Returns the class names by class index; empty: the task has no classes.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Returns the abbreviation of a sample in throughput figures: "img", "tok".
  virtual const char* unit() const = 0;
  /// Returns a summary of the data for the start of a run: "70 training and 32 validation images".
  virtual std::string describe() const = 0;
  /// Returns warnings about the data, one per line; empty if none.
  virtual std::string warning() const { return ""; }
  /// Returns a warning about training on this data; empty if there is none.
  virtual std::string training_warning() const { return ""; }
  /// Returns a score as text: "accuracy 98.51%".
  virtual std::string score_text(double score) const = 0;
  /// Returns the text printed after an evaluation's loss.
  virtual std::string evaluation_text(const Evaluation& found) const { return score_text(found.score); }
  /// Adds the data and the last evaluation to report.html; `log` is trainer_log.jsonl with the curves.
  virtual void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const = 0;
  /// Returns the last line of a finished run, for scripts, with the score of its best evaluation: "mIoU:
  /// 0.9512"; empty: none.
  virtual std::string last_line(const fs::path& /*log*/) const { return ""; }
  /// Writes the tables that other tools read from a run (Ultralytics' results.csv), from the log, after each
  /// evaluation.
  virtual void write_tables(const fs::path& /*folder*/, int64_t /*steps_per_epoch*/) const {}
  /// Writes the files that belong in the folder of saved weights, such as config.json. The weights have that
  /// dtype.
  virtual void save_companions(const fs::path&, DType) const {}
  /// Returns the bytes of host staging memory for inputs, which the arena does not include.
  virtual int64_t staging_bytes() const = 0;
};

/// Returns "; each epoch leaves out 1 (data.drop_last)" with the number of training images that an epoch
/// leaves out; empty if none.
std::string left_out_text(const Task& task);

/// Returns the distinct sizes of the micro-batches that cover `count` rows: `batch` and the rest.
std::vector<int64_t> batch_sizes(int64_t count, int64_t batch);

}  // namespace hearth::tasks
