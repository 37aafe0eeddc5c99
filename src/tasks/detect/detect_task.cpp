#include "tasks/detect/detect_task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "data/boxes/draw_boxes.h"
#include "tasks/detect/coco_eval.h"
#include "tasks/detect/detection_curves.h"
#include "tasks/detect/detection_files.h"
#include "tasks/loader_stream.h"
#include "tasks/stratified_indices.h"
#include "tasks/vision_figures.h"
#include "tasks/worst_list.h"

namespace hearth::tasks {
namespace {

/// Max side of images in the report, in pixels.
constexpr int64_t kMaxShownSide = 480;

std::unique_ptr<Detector> open(const DetectTaskOptions& options) {
  const DetectorDef* found = find_detector(options.detector.model);
  HEARTH_CHECK(found != nullptr);
  const size_t classes = options.train.class_names.size();
  if (std::ssize(options.train.class_names) > options.detector.num_classes) {
    user_error(
        "the data has {} classes, but model.num_classes is {}; remove model.num_classes to use the number in "
        "the data",
        classes, options.detector.num_classes);
  }
  if (options.train.class_names != options.held_out.class_names)
    user_error(
        "the classes of the training and the validation data differ ({} and {} classes); use the same class "
        "names for both",
        classes, options.held_out.class_names.size());
  return found->open(options.detector);
}

DetectRowOptions for_evaluation(DetectRowOptions options) {
  options.is_training = false;
  options.sides.clear();
  return options;
}

/// Returns the color for boxes of a class. Hues of consecutive classes differ by the golden angle, so that
/// colors are easy to tell apart.
std::array<uint8_t, 3> color_of(int32_t label) {
  constexpr double kGoldenAngle = 137.508, kFirst = 345, kGray = 0.1;
  const double hue = std::fmod(kFirst + kGoldenAngle * label, 360) / 60;
  const auto channel = [&](double offset) {
    const double at = std::fmod(offset + hue, 6);
    return static_cast<uint8_t>(255 * (1 - (1 - kGray) * std::clamp(std::min(at, 4 - at), 0.0, 1.0)));
  };
  return {channel(5), channel(3), channel(1)};
}

data::LabeledBox labeled(const data::Box& box, const std::vector<std::string>& names) {
  return {.box = box, .text = names[static_cast<size_t>(box.label)], .color = color_of(box.label)};
}

io::ReportTable class_table(const CocoResult& result, const std::vector<std::string>& names) {
  io::ReportTable made{
      .title = "Classes", .header = {"class", "AP", "AP50", "recall", "boxes"}, .is_sortable = true};
  for (size_t i = 0; i < names.size(); ++i) {
    const CocoResult::Class& one = result.classes[i];
    made.rows.push_back({names[i], percent_text(one.ap), percent_text(one.ap50), percent_text(one.recall),
                         std::to_string(one.truths)});
  }
  return made;
}

io::ReportTable number_table(const CocoResult& result) {
  io::ReportTable made{.title = "COCO metrics", .header = {"", "value"}};
  const std::string lines = coco_summary(result.numbers);
  std::string_view rest = lines;
  for (const double number : result.numbers) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    made.rows.push_back({std::string(line.substr(0, line.rfind('='))), fmt::format("{:.3f}", number)});
  }
  return made;
}

/// Returns the curves of all classes for the report.
std::vector<ScoreCurve> score_curves(const CocoResult& result, const ConfidenceCurves& curves) {
  std::vector<ScoreCurve> made;
  for (size_t i = 0; i < result.classes.size(); ++i) {
    const CocoResult::Class& one = result.classes[i];
    made.push_back({.num_positives = one.truths,
                    .average_precision = one.ap50,
                    .precision_at_recall = one.precision_at_recall,
                    .f1 = curves.classes[i].f1});
  }
  return made;
}

/// Returns charts of the numbers of boxes by class and by image, and of the box sizes.
std::vector<std::string> label_charts(const data::BoxedImages& set, const std::string& split) {
  std::vector<int64_t> counts(set.class_names.size());
  Histogram per_image({1, 2, 3, 5, 9, 17, 33, 65}, Histogram::Kind::integers, "");
  Histogram sizes({8, 16, 32, 64, 96, 128, 256, 512}, Histogram::Kind::reals, " px");
  for (const data::BoxedImage& image : set.images) {
    per_image.add(static_cast<double>(image.boxes.size()));
    for (const data::Box& box : image.boxes) {
      ++counts[static_cast<size_t>(box.label)];
      sizes.add(std::sqrt((box.x1 - box.x0) * (box.y1 - box.y0)));
    }
  }
  return {class_count_chart(split + " boxes by class", set.class_names, counts),
          per_image.chart(split + " images by number of boxes"),
          sizes.chart(split + " boxes by size, the root of their area")};
}

std::string map50_text(double map50) { return fmt::format("mAP50: {:.4f}", map50); }

double value_at(const std::vector<io::CurvePoint>& curve, int64_t step) {
  const auto found = std::ranges::find(curve, step, &io::CurvePoint::step);
  return found == curve.end() ? 0.0 : found->value;
}

/// Encodes an image of the report as JPEG, at the highest quality that fits kMaxBytes. A report with 16
/// strips of two such images in base64 is smaller than 3 MB.
std::string small_jpeg(const data::Image& image) {
  constexpr size_t kMaxBytes = 56 << 10;
  std::string file;
  for (const int quality : {85, 70, 50, 30, 15, 5}) {
    file = data::encode_jpeg(image, quality);
    if (file.size() <= kMaxBytes) break;
  }
  return file;
}

/// Returns for each image the distinct classes of its boxes, without crowds.
std::vector<std::vector<int32_t>> classes_of(const data::BoxedImages& set) {
  std::vector<std::vector<int32_t>> made;
  for (const data::BoxedImage& original : set.images) {
    std::vector<int32_t> classes;
    for (const data::Box& box : original.boxes)
      if (!box.crowd) classes.push_back(box.label);
    std::ranges::sort(classes);
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    made.push_back(std::move(classes));
  }
  return made;
}

}  // namespace

DetectionClasses read_detection_classes(const fs::path& path) {
  constexpr int64_t kMaxFileBytes = 16 << 20;
  const auto json = parse_json_object<nlohmann::json>(read_file(path, kMaxFileBytes), path.string());
  try {
    DetectionClasses made{.names = json.at("names"), .category_ids = json.at("category_ids")};
    if (!made.names.empty() && made.names.size() == made.category_ids.size()) return made;
  } catch (const nlohmann::json::exception&) {
    // The error below is thrown.
  }
  user_error("{}: expected names and category_ids of the classes of a run", path.string());
}

std::vector<Detection> detections_of(const Detector& detector, const engine::Engine& engine, int64_t row,
                                     Extent original, Extent input, const NmsOptions& nms) {
  const data::Letterbox letterbox = data::letterbox_of(original, input);
  std::vector<Detection> found = suppress(detector.read(engine, row, input, nms.score), nms);
  for (Detection& one : found) {
    data::Box box{.x0 = one.x, .y0 = one.y, .x1 = one.x + one.width, .y1 = one.y + one.height};
    box = letterbox.undo(box);
    const auto clip = [](double at, int64_t side) { return std::clamp(at, 0.0, static_cast<double>(side)); };
    one.x = clip(box.x0, original.width);
    one.y = clip(box.y0, original.height);
    one.width = clip(box.x1, original.width) - one.x;
    one.height = clip(box.y1, original.height) - one.y;
  }
  return found;
}

data::Image draw_detections(data::Image original, std::span<const Detection> detections,
                            const std::vector<std::string>& names, double min_score) {
  std::vector<data::LabeledBox> boxes;
  // The most confident box is drawn last, on top.
  for (auto one = detections.rbegin(); one != detections.rend(); ++one) {
    if (one->score < min_score) continue;
    const auto label = static_cast<size_t>(one->label);
    const std::string name = label < names.size() ? names[label] : std::to_string(label);
    boxes.push_back(
        {.box = {.x0 = one->x, .y0 = one->y, .x1 = one->x + one->width, .y1 = one->y + one->height},
         .text = fmt::format("{} {:.0f}%", name, 100 * one->score),
         .color = color_of(one->label)});
  }
  data::draw_boxes(original, boxes);
  return original;
}

namespace {

/// Training images as RGB bytes with their boxes drawn. A RowSource, so that data::Loader reads the rows in
/// training order.
class DrawnRows : public data::RowSource {
 public:
  DrawnRows(const DetectRows& rows, const std::vector<std::string>& names) : rows_(rows), names_(names) {}
  int64_t num_rows() const override { return rows_.num_rows(); }
  int64_t row_length(const data::LoaderPosition& begin) const override { return rows_.row_length(begin); }
  data::ArrayFormats formats(int64_t length) const override { return {{{"images", row_bytes(length)}}}; }
  /// Returns the bytes of a drawn image: one per channel, where DetectRows has one float.
  int64_t row_bytes(int64_t length) const {
    return rows_.formats(length)[0].row_bytes / static_cast<int64_t>(sizeof(float));
  }
  void make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const override {
    data::BoxSample sample = rows_.training_sample(row);
    std::vector<data::LabeledBox> boxes;
    for (const data::Box& box : sample.boxes) boxes.push_back(labeled(box, names_));
    data::draw_boxes(sample.image, boxes);
    std::memcpy(arrays[0], sample.image.pixels.data(), sample.image.pixels.size());
  }

 private:
  const DetectRows& rows_;
  const std::vector<std::string>& names_;
};

}  // namespace

DetectTask::DetectTask(DetectTaskOptions options)
    : options_(std::move(options)),
      detector_(tasks::open(options_)),
      train_rows_(options_.train, *detector_, options_.rows),
      test_rows_(options_.held_out, *detector_, for_evaluation(options_.rows)),
      reader_(options_.held_out, kMaxShownSide, kMaxShownSide, nullptr) {
  if (options_.balance) balance_.emplace(data::rarest_classes(classes_of(options_.train)));
}

std::vector<int64_t> DetectTask::row_lengths() const {
  std::vector<int64_t> lengths = options_.rows.sides;
  if (lengths.empty()) return {};
  lengths.push_back(options_.rows.size.height);
  std::ranges::sort(lengths, std::ranges::greater());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

std::unique_ptr<BatchStream> DetectTask::open(const data::LoaderPosition& from,
                                              const data::LoaderShare& share) const {
  data::LoaderOptions options = with_balance(options_.loader, balance_);
  options.share = share;
  return std::make_unique<LoaderStream>(train_rows_, options, from);
}

std::unique_ptr<BatchStream> DetectTask::open_held_out() const {
  return std::make_unique<LoaderStream>(test_rows_, data::in_order(options_.loader));
}

Evaluation DetectTask::evaluate(engine::Engine& engine, int64_t num_shown) const {
  const data::BoxedImages& set = options_.held_out;
  const data::LoaderOptions options = data::in_order(options_.loader);
  LoaderStream stream(test_rows_, options);
  const auto num_classes = std::ssize(set.class_names);
  std::vector<EvaluatedImage> evaluated = truths_of(set);
  Evaluation made;
  const std::vector<int64_t> shown =
      stratified_indices(std::min(num_shown, kMaxStrips), test_rows_.num_rows());
  WorstList<ImageErrors> worst(std::min(num_shown, kMaxStrips));
  const Extent size = options_.rows.size;
  for (int64_t done = 0; done < test_rows_.num_rows();) {
    engine::MicroBatch batch = stream.next();
    if (!options_.rows.sides.empty()) batch.row_length = size.height;
    made.loss += engine.evaluate(batch);
    for (int64_t row = 0; row < batch.num_rows; ++row, ++done) {
      const data::BoxedImage& original = set.images[static_cast<size_t>(done)];
      EvaluatedImage& image = evaluated[static_cast<size_t>(done)];
      image.detections =
          detections_of(*detector_, engine, row, {original.height, original.width}, size, options_.nms);
      // Removes detections of classes that the data lacks (model.num_classes may be larger), because they
      // belong to no evaluated class.
      std::erase_if(image.detections, [&](const Detection& one) { return one.label >= num_classes; });
      if (std::ranges::binary_search(shown, done)) made.strips.push_back(strip(done, image.detections));
      const ImageErrors errors = count_errors(image, options_.shown_score);
      if (errors.error > 0 && worst.accepts(errors.error)) worst.add(errors.error, done, errors);
    }
  }
  made.loss /= static_cast<double>(test_rows_.num_rows());
  const CocoResult result = evaluate_coco(evaluated, num_classes);
  const ConfidenceCurves curves = trace_confidence(evaluated, num_classes);
  const auto best = static_cast<size_t>(std::lround(100 * curves.best_score));
  made.score = std::max(0.0, result.numbers[0]);
  made.metrics = {{"map", made.score},
                  {"map50", std::max(0.0, result.numbers[1])},
                  {"map75", std::max(0.0, result.numbers[2])},
                  {"precision", curves.mean.precision.at(best)},
                  {"recall", curves.mean.recall.at(best)},
                  {"f1", curves.best_f1}};
  made.tables = {number_table(result), class_table(result, set.class_names)};
  made.confusion = count_confusions(evaluated, num_classes);
  if (num_shown == 0) return made;
  made.sections = {
      precision_section(score_curves(result, curves), set.class_names,
                        "A detection is right if its IoU with a box of its class is at least 0.5.")};
  for (const auto& [error, index, errors] : worst.entries()) {
    made.worst_strips.push_back(strip(index, evaluated[static_cast<size_t>(index)].detections));
    made.worst_strips.back().caption +=
        fmt::format(": {} wrong, {} missed", errors.num_wrong, errors.num_missed);
  }
  return made;
}

io::ImageStrip DetectTask::strip(int64_t index, std::span<const Detection> found) const {
  const data::BoxedImage& original = options_.held_out.images[static_cast<size_t>(index)];
  const std::shared_ptr<const data::Image> stored = reader_.read(index);
  const data::Image small = data::resize(*stored, data::shrunk_to_fit(stored->size(), kMaxShownSide));
  const double scale_x = static_cast<double>(small.width) / static_cast<double>(original.width);
  const double scale_y = static_cast<double>(small.height) / static_cast<double>(original.height);
  std::vector<data::LabeledBox> truths;
  for (data::Box box : original.boxes) {
    box.x0 *= scale_x;
    box.x1 *= scale_x;
    box.y0 *= scale_y;
    box.y1 *= scale_y;
    truths.push_back(labeled(box, options_.held_out.class_names));
  }
  std::vector<Detection> scaled(found.begin(), found.end());
  for (Detection& one : scaled) {
    one.x *= scale_x;
    one.width *= scale_x;
    one.y *= scale_y;
    one.height *= scale_y;
  }
  data::Image truth = small;
  data::draw_boxes(truth, truths);
  const data::Image predicted =
      draw_detections(small, scaled, options_.held_out.class_names, options_.shown_score);
  return {.images = {small_jpeg(truth), small_jpeg(predicted)}, .caption = original.file.string()};
}

std::string DetectTask::describe() const {
  int64_t boxes = 0;
  for (const data::BoxedImage& original : options_.train.images) boxes += std::ssize(original.boxes);
  return fmt::format("{} training{} and {} validation images, {} boxes of {} classes to learn from{}",
                     train_rows_.num_rows(), balance_ ? kBalanced : "", test_rows_.num_rows(), boxes,
                     options_.train.class_names.size(), left_out_text(*this));
}

std::string DetectTask::warning() const {
  const size_t count = options_.train.notes.size() + options_.held_out.notes.size();
  if (count == 0) return "";
  // Prints the first note of each split. With data.bad_records=skip it states the number of images left out.
  std::vector<std::string> first;
  for (const auto* notes : {&options_.train.notes, &options_.held_out.notes})
    if (!notes->empty() && std::ranges::find(first, notes->front()) == first.end())
      first.push_back(notes->front());
  return fmt::format("warning: {} note{} on the labels (hearth validate lists them), for example: {}", count,
                     count == 1 ? "" : "s", fmt::join(first, "\n  and: "));
}

std::string DetectTask::score_text(double score) const { return fmt::format("mAP50-95: {:.4f}", score); }

std::string DetectTask::evaluation_text(const Evaluation& found) const {
  double map50 = 0;
  for (const auto& [name, value] : found.metrics)
    if (std::string_view(name) == "map50") map50 = value;
  return map50_text(map50) + ", " + score_text(found.score);
}

std::string DetectTask::last_line(const fs::path& log) const {
  const auto curves = io::read_curves(log, {"eval_map", "eval_map50"});
  const auto best = std::ranges::max_element(curves[0], {}, &io::CurvePoint::value);
  return best == curves[0].end() ? "" : map50_text(value_at(curves[1], best->step));
}

void DetectTask::report(const Evaluation& last, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training images", std::to_string(train_rows_.num_rows()));
  data.summary.emplace_back("validation images", std::to_string(test_rows_.num_rows()));
  data.score = {"Mean average precision, %", "mAP50-95", io::read_curve(log, "eval_map")};
  for (io::CurvePoint& point : data.score.points) point.value *= 100;
  data.class_names = options_.held_out.class_names;
  data.class_names.emplace_back("background");
  // Transposes the matrix: in the report rows are true classes, in the result of count_confusions columns
  // are.
  const size_t n = data.class_names.size();
  data.confusion.assign(last.confusion.size(), 0);
  for (size_t i = 0; i < last.confusion.size(); ++i) data.confusion[i % n * n + i / n] = last.confusion[i];
  data.tables = last.tables;
  if (!data.confusion.empty()) data.tables.push_back(frequent_confusions(data.confusion, data.class_names));
  data.sections = last.sections;
  data.sections.push_back(
      {.title = "Labels", .note = "", .charts = label_charts(options_.train, "Training")});
  data.worst_note = fmt::format(
      "Images with the largest sum of missed boxes and scores of wrong boxes, of at least {:g}: the labels, "
      "then "
      "the predictions.",
      options_.shown_score);
  data.worst_strips = last.worst_strips;
  data.strips_title = "Labels and predictions";
  data.strips = last.strips;
}

void DetectTask::show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const {
  page.strips_title = "Training images and their boxes";
  const DrawnRows rows(train_rows_, options_.train.class_names);
  for_rows_from(
      rows, with_balance(options_.loader, balance_), from, count, [&](const data::Batch& batch, int64_t row) {
        const Extent size = train_rows_.size_of(batch.row_length);
        data::Image image{.height = size.height, .width = size.width, .channels = 3};
        const int64_t bytes = rows.row_bytes(batch.row_length);
        const uint8_t* const pixels = batch.array<uint8_t>(0) + row * bytes;
        image.pixels.assign(pixels, pixels + bytes);
        // With mosaic or mixup, the caption names only the first of several files.
        page.strips.push_back(
            {.images = {small_jpeg(image)},
             .caption = options_.train.images[static_cast<size_t>(batch.indices[row])].file.string()});
      });
}

void DetectTask::write_tables(const fs::path& folder, int64_t steps_per_epoch) const {
  const fs::path log = folder / kLogFile;
  const std::vector<std::vector<io::CurvePoint>> curves = io::read_curves(
      log,
      {"eval_map", "elapsed_time", "loss", "eval_precision", "eval_recall", "eval_map50", "eval_loss", "lr"});
  std::string text =
      "epoch,time,train/loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B),metrics/mAP50-95(B),"
      "val/loss,lr/pg0\n";
  for (const io::CurvePoint& point : curves[0]) {
    const auto at = [&](size_t curve) { return value_at(curves[curve], point.step); };
    text += fmt::format("{},{:.3f},{:.5f},{:.5f},{:.5f},{:.5f},{:.5f},{:.5f},{:.8g}\n",
                        (point.step + steps_per_epoch - 1) / steps_per_epoch, at(1), at(2), at(3), at(4),
                        at(5), point.value, at(6), at(7));
  }
  write_file_atomically(folder / "results.csv", text);
}

void DetectTask::save_companions(const fs::path& folder, DType) const {
  const nlohmann::json json = {{"names", options_.train.class_names},
                               {"category_ids", options_.train.category_ids}};
  write_file_atomically(folder / kDetectionClasses, json.dump(1) + "\n");
}

int64_t DetectTask::staging_bytes() const {
  return 2 * options_.loader.batch * data::row_bytes(train_rows_.formats(0));
}

}  // namespace hearth::tasks
