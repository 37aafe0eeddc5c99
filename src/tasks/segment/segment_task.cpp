#include "tasks/segment/segment_task.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/run_files.h"
#include "data/image_reader.h"
#include "data/images/augment.h"
#include "tasks/loader_stream.h"
#include "tasks/segment/segmenter.h"
#include "tasks/stratified_indices.h"
#include "tasks/vision_figures.h"
#include "tasks/worst_list.h"

namespace hearth::tasks {
namespace {

/// Max side of images in the report, in pixels.
constexpr int64_t kMaxShownSide = 320;

/// Stream of training micro-batches that adds the class weights of the loss, if there are any, as an array.
class MaskStream : public LoaderStream {
 public:
  MaskStream(const data::RowSource& rows, const data::LoaderOptions& options,
             const data::LoaderPosition& from, std::vector<float> class_weights)
      : LoaderStream(rows, options, from), class_weights_(std::move(class_weights)) {
    if (!class_weights_.empty())
      class_weights_.resize(class_weights_.size() + engine::kInputSlack / sizeof(float));
  }

  engine::MicroBatch next() override {
    engine::MicroBatch made = LoaderStream::next();
    if (!class_weights_.empty()) made.add({"class_weights", class_weights_.data()});
    return made;
  }

 private:
  std::vector<float> class_weights_;
};

/// Returns a strip of an image and its masks in the colors of the classes, shrunk to at most kMaxShownSide
/// pixels per side.
io::ImageStrip strip_of(const data::Image& image, std::initializer_list<const data::Image*> masks,
                        const std::vector<data::MaskClass>& classes, std::string caption) {
  const Extent size = data::shrunk_to_fit(image.size(), kMaxShownSide);
  io::ImageStrip strip{.images = {data::encode_png(data::resize(image, size))},
                       .caption = std::move(caption)};
  for (const data::Image* mask : masks)
    strip.images.push_back(data::encode_png(data::colorize(data::resize_mask(*mask, size), classes)));
  return strip;
}

/// Returns the colors of the classes in strips.
std::vector<io::LegendEntry> legend_of(const std::vector<data::MaskClass>& classes) {
  std::vector<io::LegendEntry> legend;
  for (const auto& [name, color] : classes)
    legend.push_back({name, fmt::format("rgb({},{},{})", color[0], color[1], color[2])});
  return legend;
}

/// Accumulates the metrics of evaluated images, and the contents of the report if it shows samples.
class MetricSums {
 public:
  MetricSums(const data::MaskedImages& images, int64_t num_classes, int64_t num_shown)
      : images_(images),
        num_classes_(num_classes),
        confusion_(num_classes),
        has_report_(num_shown > 0),
        shown_(stratified_indices(std::min(num_shown, kMaxStrips), images.size())),
        worst_(std::min(num_shown, kMaxStrips)) {}

  /// Adds an image. `predicted` has the size of `truth`.
  void add(int64_t index, const data::Image& truth, const data::Image& predicted) {
    Confusion own(has_report_ ? num_classes_ : 0);
    for (size_t i = 0; i < truth.pixels.size(); ++i) {
      if (truth.pixels[i] == data::kUnlabeled) continue;
      confusion_.add(truth.pixels[i], predicted.pixels[i]);
      own.add(truth.pixels[i], predicted.pixels[i]);
    }
    if (!has_report_) return;
    add_areas(own, static_cast<double>(truth.pixels.size()));
    const std::vector<double> iou = own.iou();
    const bool is_labeled = std::ranges::any_of(iou, [](double one) { return one >= 0; });
    const double error = is_labeled ? 1 - Confusion::mean(iou) : 0;
    if (error > 0 && worst_.accepts(error))
      worst_.add(error, index,
                 data::resize_mask(predicted, data::shrunk_to_fit(predicted.size(), kMaxShownSide)));
    if (std::ranges::binary_search(shown_, index)) strips_.push_back(strip(index, predicted));
  }

  Evaluation take(double loss) {
    const std::vector<double> iou = confusion_.iou();
    Evaluation made{.loss = loss, .score = Confusion::mean(iou), .confusion = confusion_.counts()};
    made.metrics = {{"miou", made.score},
                    {"pixel_accuracy", confusion_.pixel_accuracy()},
                    {"mean_accuracy", Confusion::mean(confusion_.accuracy())}};
    made.tables = {table(iou)};
    made.strips = std::move(strips_);
    if (has_report_) add_figures(iou, made);
    return made;
  }

 private:
  /// Counts the areas of the classes in the true mask of an image of `num_pixels`.
  void add_areas(const Confusion& image, double num_pixels) {
    for (int64_t label = 0; label < num_classes_; ++label)
      if (const int64_t area = image.num_true(label); area > 0)
        areas_.add(100 * static_cast<double>(area) / num_pixels);
  }

  io::ImageStrip strip(int64_t index, const data::Image& predicted) const {
    data::Image image, mask;
    images_.read(index, image, mask);
    return strip_of(image, {&mask, &predicted}, images_.classes(), images_.where(index));
  }

  io::ReportTable table(const std::vector<double>& iou) const {
    io::ReportTable made{.title = "Classes",
                         .header = {"class", "IoU", "accuracy", "precision", "pixels"},
                         .is_sortable = true};
    const std::vector<double> accuracy = confusion_.accuracy();
    const auto percent = [](double share) { return share < 0 ? "-" : fmt::format("{:.2f}%", 100 * share); };
    for (size_t i = 0; i < images_.classes().size(); ++i) {
      const ClassCounts counts = counts_of_class(confusion_.counts(), static_cast<size_t>(num_classes_), i);
      made.rows.push_back({images_.classes()[i].name, percent(iou[i]), percent(accuracy[i]),
                           percent(counts.precision()), std::to_string(counts.num_true)});
    }
    return made;
  }

  void add_figures(const std::vector<double>& iou, Evaluation& made) const {
    std::vector<std::string> names;
    std::vector<int64_t> pixels;
    for (const data::MaskClass& one : images_.classes()) {
      pixels.push_back(confusion_.num_true(std::ssize(names)));
      names.push_back(one.name);
    }
    made.sections = {
        {.title = "Intersection over union",
         .note = "",
         .charts = {class_share_chart("IoU by class", names, std::span(iou).first(names.size()))}},
        {.title = "Labels",
         .note = "Pixels and areas of the validation masks. An area is the share of an image that a "
                 "class covers.",
         .charts = {class_count_chart("Pixels by class", names, pixels),
                    areas_.chart("Areas of classes in images")}}};
    for (const auto& [error, index, predicted] : worst_.entries()) {
      made.worst_strips.push_back(strip(index, predicted));
      made.worst_strips.back().caption += fmt::format(": mean IoU {}", percent_text(1 - error));
    }
  }

  const data::MaskedImages& images_;
  int64_t num_classes_;
  Confusion confusion_;
  bool has_report_;
  std::vector<int64_t> shown_;
  WorstList<data::Image> worst_;  ///< with the predicted masks, shrunk
  Histogram areas_{{0.1, 1, 2, 5, 10, 20, 50}, Histogram::Kind::reals, "%"};
  std::vector<io::ImageStrip> strips_;
};

data::MaskRowOptions unchanged(data::MaskRowOptions options) {
  options.min_scale = options.max_scale = 1;
  options.pixels.augment = {};
  return options;
}

}  // namespace

SegmentTask::SegmentTask(const SegmentTaskOptions& options)
    : model_(options.model),
      loader_(options.loader),
      options_(options.rows),
      train_(data::open_masks(options.train)),
      test_(data::open_masks(options.held_out)) {
  if (model_.channels != 3)
    user_error("expected data.channels=3 for segmentation, got {}; try data.channels=3", model_.channels);
  if (std::ssize(train_->classes()) > model_.num_classes) {
    user_error(
        "the data has {} classes, but model.num_classes is {}; remove model.num_classes to use the number in "
        "the data",
        train_->classes().size(), model_.num_classes);
  }
  if (options.class_weights == recipe::ClassWeights::median_frequency)
    options_.class_weights = data::median_frequency_weights(*train_);
  if (options.class_weights != recipe::ClassWeights::none)
    options_.class_weights.resize(static_cast<size_t>(model_.num_classes));
  rows_ = std::make_unique<data::MaskRows>(*train_, options_);
  if (options.balance) balance_.emplace(data::rarest_classes(data::classes_of_masks(*train_)));
}

std::vector<std::string> SegmentTask::class_names() const {
  std::vector<std::string> names;
  for (const data::MaskClass& one : train_->classes()) names.push_back(one.name);
  return names;
}

std::vector<int64_t> SegmentTask::eval_sizes(int64_t batch) const {
  return options_.resizes ? Task::eval_sizes(batch) : std::vector<int64_t>{batch};
}

std::unique_ptr<BatchStream> SegmentTask::open(const data::LoaderPosition& from,
                                               const data::LoaderShare& share) const {
  data::LoaderOptions options = with_balance(loader_, balance_);
  options.share = share;
  return std::make_unique<MaskStream>(*rows_, options, from, options_.class_weights);
}

MaskInput SegmentTask::input() const {
  return {.size = options_.size,
          .resizes = options_.resizes,
          .pixels = unchanged(options_).pixels,
          .num_classes = model_.num_classes,
          .class_weights = options_.class_weights};
}

std::unique_ptr<BatchStream> SegmentTask::open_held_out() const {
  return std::make_unique<HeldOutStream<data::MaskRows>>(data::MaskRows(*test_, unchanged(options_)),
                                                         loader_);
}

Evaluation SegmentTask::evaluate(engine::Engine& engine, int64_t num_shown) const {
  MetricSums tally(*test_, model_.num_classes, num_shown);
  data::Image truth;
  if (!options_.resizes) {
    MaskPredictor predictor(engine, input(), loader_.batch);
    MaskPredictor::Loss loss;
    data::Image image;
    for (int64_t i = 0; i < test_->size(); ++i) {
      test_->read(i, image, truth);
      tally.add(i, truth, predictor.predict(image, &truth, &loss));
    }
    return tally.take(loss.sum / static_cast<double>(loss.count));
  }
  const data::LoaderOptions options = data::in_order(loader_);
  const data::MaskRows rows(*test_, unchanged(options_));
  MaskStream stream(rows, options, {.seed = options.seed}, options_.class_weights);
  double loss = 0;
  data::Image made{.height = options_.size.height, .width = options_.size.width, .channels = 1};
  for (int64_t done = 0; done < test_->size();) {
    const engine::MicroBatch batch = stream.next();
    loss += engine.evaluate(batch);
    const std::span<const int32_t> classes = engine.int_output(kPixelClasses);
    for (int64_t row = 0; row < batch.num_rows; ++row, ++done) {
      const auto from = classes.begin() + row * options_.size.num_pixels();
      made.pixels.assign(from, from + options_.size.num_pixels());
      test_->read_mask(done, truth);
      tally.add(done, truth, data::resize_mask(made, truth.size()));
    }
  }
  return tally.take(loss / static_cast<double>(test_->size()));
}

std::string SegmentTask::describe() const {
  return fmt::format("{} training{} and {} validation images with masks of {} classes{}", train_->size(),
                     balance_ ? kBalanced : "", test_->size(), train_->classes().size(),
                     left_out_text(*this));
}

std::string SegmentTask::warning() const {
  std::vector<std::string> lines;
  for (const auto* images : {train_.get(), test_.get()})
    for (const std::string& note : images->notes()) lines.push_back("note: " + note);
  if (train_->classes() != test_->classes())
    lines.emplace_back("warning: the classes of the training and the validation masks differ");
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string SegmentTask::score_text(double score) const { return fmt::format("mIoU: {:.4f}", score); }

std::string SegmentTask::evaluation_text(const Evaluation& found) const {
  std::string text = score_text(found.score);
  for (const auto& [name, value] : found.metrics) {
    if (std::string_view(name) == "pixel_accuracy")
      text += fmt::format(", pixel accuracy {:.2f}%", 100 * value);
  }
  return text;
}

std::string SegmentTask::last_line(const fs::path& log) const {
  const std::vector<io::CurvePoint> scores = io::read_curve(log, "eval_miou");
  const auto best = std::ranges::max_element(scores, {}, &io::CurvePoint::value);
  return best == scores.end() ? "" : score_text(best->value);
}

void SegmentTask::report(const Evaluation& last, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training images", std::to_string(train_->size()));
  data.summary.emplace_back("validation images", std::to_string(test_->size()));
  data.score = {"Mean intersection over union, %", "mIoU", io::read_curve(log, "eval_miou")};
  for (io::CurvePoint& point : data.score.points) point.value *= 100;
  for (const data::MaskClass& one : test_->classes()) data.class_names.push_back(one.name);
  data.class_names.resize(static_cast<size_t>(model_.num_classes));
  data.confusion = last.confusion;
  data.tables = last.tables;
  if (!data.confusion.empty()) data.tables.push_back(frequent_confusions(data.confusion, data.class_names));
  data.sections = last.sections;
  data.worst_note =
      "Images with the lowest mean IoU of their classes: the image, its mask, and the prediction.";
  data.worst_strips = last.worst_strips;
  data.strips_title = "Images, their masks, and predictions";
  data.legend = legend_of(test_->classes());
  data.strips = last.strips;
}

void SegmentTask::show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const {
  page.strips_title = "Training images and their masks";
  page.legend = legend_of(train_->classes());
  const Extent size = options_.size;
  for_rows_from(
      *rows_, with_balance(loader_, balance_), from, count, [&](const data::Batch& batch, int64_t row) {
        const int64_t pixels = size.num_pixels();
        const data::Image image = data::image_of_normalized(
            options_.pixels, size, model_.channels, batch.array<float>(0) + row * pixels * model_.channels);
        const std::span labels(batch.array<int32_t>(1) + row * pixels, static_cast<size_t>(pixels));
        data::Image mask{.height = size.height, .width = size.width, .channels = 1};
        for (const int32_t label : labels)
          mask.pixels.push_back(label < 0 ? data::kUnlabeled : static_cast<uint8_t>(label));
        page.strips.push_back(strip_of(image, {&mask}, train_->classes(), train_->where(batch.indices[row])));
      });
}

void SegmentTask::save_companions(const fs::path& folder, DType) const {
  std::string text = "name,r,g,b\n";
  for (const auto& [name, color] : train_->classes())
    text += fmt::format("{},{},{},{}\n", name, color[0], color[1], color[2]);
  write_file_atomically(folder / kClassTable, text);
}

int64_t SegmentTask::staging_bytes() const {
  return 8 * loader_.batch * options_.size.num_pixels() * (model_.channels + 1);
}

}  // namespace hearth::tasks
