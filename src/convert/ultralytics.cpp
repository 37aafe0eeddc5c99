#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

constexpr std::string_view kDataset = "data.";

/// True if the file is a data.yaml, not the arguments of a run.
bool yolo_is_dataset(const Config& config) {
  return config.has("names") && config.find("train") != nullptr && config.find("epochs") == nullptr;
}

/// Gives the keys of data.yaml the prefix "data.": those of the file, or of the file that the argument `data`
/// names. Class names become one entry.
void yolo_add_dataset(Config& into, const Config& dataset) {
  for (Entry entry : dataset.entries()) {
    if (entry.key.starts_with("names.")) continue;
    entry.key = std::string(kDataset) + entry.key;
    into.entries().push_back(std::move(entry));
  }
  const Entry* name = nullptr;
  for (const Entry& entry : dataset.entries())
    if (entry.key.starts_with("names.") && name == nullptr) name = &entry;
  if (name != nullptr)
    into.entries().push_back(
        {.path = "names", .key = "data.names", .value = "by index", .where = name->where});
}

void yolo_prepare(Config& config, const ImportOptions& options) {
  if (yolo_is_dataset(config)) {
    Config dataset = config;
    config.entries().clear();
    yolo_add_dataset(config, dataset);
    const std::string where = dataset.entries()[0].where;
    config.entries().push_back(
        {.path = "data", .key = "data", .value = where.substr(0, where.rfind(':')), .where = where});
    return;
  }
  const std::string name = config.text("data");
  const bool is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
  if (!is_yaml || !options.reads_files || !path_exists(name)) return;
  yolo_add_dataset(config, Config(read_file(name, kMaxYamlBytes), fs::path(name)));
}

Result yolo_data(Importer& importer, const Entry& entry) {
  const fs::path file = text_of(entry.value);
  const std::string task = importer.config.text("task", "detect");
  if (task == "classify") {
    importer.set("data.kind", "folder");
    return importer.set_text("data.path", file.string());
  }
  importer.set("data.kind", "yolo");
  const bool is_yaml = file.extension() == ".yaml" || file.extension() == ".yml";
  if (!is_yaml) return importer.set_text("data.path", file.string());
  const std::string name = file.filename().string();
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (name == "data.yaml" || name == "data.yml" || name == "dataset.yaml")
    return importer.set_text("data.path", folder);
  return importer.refuse("copy the file as data.yaml into the folder of the data", "data.path", folder);
}

Result yolo_task(Importer& importer, const Entry& entry) {
  const std::string task = text_of(entry.value);
  if (task == "detect" || task == "classify") return equal("data.kind and model.name select the task");
  return importer.refuse("only detection and classification can be imported", "data.kind");
}

/// Selects the model of the nearest size: n, s, m, l or x before the extension.
Result yolo_model(Importer& importer, const Entry& entry) {
  const std::string name = fs::path(text_of(entry.value)).stem().string();
  if (importer.config.text("task", "detect") == "classify" || name.ends_with("-cls"))
    return importer.refuse("Hearth has no " + name, "model.name", "resnet18");
  const char size = name.empty() ? 's' : name.back();
  const std::string nearest = size == 'n'                  ? "yolox_nano"
                              : size == 'm'                ? "yolox_m"
                              : size == 'l' || size == 'x' ? "yolox_l"
                                                           : "yolox_s";
  return importer.refuse("Hearth has YOLOX instead of " + name, "model.name", nearest);
}

/// Returns the number of micro-batches of an update, which together have about nbs (64) images.
double yolo_accumulate(const Importer& importer) {
  const double batch = importer.config.number("batch", 16), nominal = importer.config.number("nbs", 64);
  return std::max(1.0, std::round(nominal / std::max(1.0, batch)));
}

Result yolo_batch(Importer& importer, const Entry& entry) {
  const double batch = number_of(entry.value, 16);
  if (batch < 1 || batch != std::round(batch))
    return importer.refuse(
        "the batch is a fraction of the GPU's memory; hearth plan computes the largest one", "train.batch",
        "16");
  importer.set("train.accumulate", number_text(yolo_accumulate(importer)));
  return importer.set("train.batch", number_text(batch),
                      fmt::format("train.accumulate={}, from nbs", yolo_accumulate(importer)));
}

/// Sets the weight decay, which ultralytics scales by batch x accumulate / nbs.
Result yolo_weight_decay(Importer& importer, const Entry& entry) {
  const double scale = importer.config.number("batch", 16) * yolo_accumulate(importer) /
                       std::max(1.0, importer.config.number("nbs", 64));
  return importer.set("optimizer.weight_decay", number_text(number_of(entry.value, 0) * scale),
                      "weight_decay x batch x train.accumulate / nbs; Hearth also decays norms and biases");
}

Result yolo_optimizer(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  const double momentum = importer.config.number("momentum", 0.937);
  if (name == "SGD") {
    importer.set("optimizer.nesterov", "true");
    importer.set("optimizer.momentum", number_text(momentum));
    return importer.set("optimizer.name", "sgd", "with Nesterov momentum");
  }
  importer.set("optimizer.beta1", number_text(momentum));
  if (name == "AdamW") return importer.set("optimizer.name", "adamw");
  return importer.refuse(
      name == "auto" ? "auto selects an optimizer by the number of updates" : "Hearth has no " + name,
      "optimizer.name", "adamw");
}

/// Sets the schedule. Without cos_lr, the learning rate falls linearly from lr0 to lr0 x lrf.
Result yolo_schedule(Importer& importer, const Entry& entry) {
  const double last = importer.config.number("lr0", 0.01) * importer.config.number("lrf", 0.01);
  importer.set("schedule.min_lr", number_text(last));
  if (!is_off(entry.value)) return importer.set("schedule.name", "cosine", "schedule.min_lr=lr0 x lrf");
  return importer.refuse("Hearth has no linear schedule", "schedule.name", "cosine");
}

Result yolo_warmup(Importer& importer, const Entry& entry) {
  const double epochs = number_of(entry.value, 0), total = importer.config.number("epochs", 100);
  if (epochs <= 0) return importer.set("schedule.warmup_steps", "0");
  const auto updates = importer.updates();
  if (!updates || total <= 0)
    return importer.refuse(
        "the value is a number of epochs, whose number of updates is unknown without the data",
        "schedule.warmup_steps");
  return importer.set("schedule.warmup_steps", number_text(std::round(*updates * epochs / total)));
}

/// Refuses the warmup of momentum and of the learning rate of biases.
Result yolo_warmup_detail(Importer& importer, const Entry&) {
  if (importer.config.number("warmup_epochs", 3) <= 0) return no_effect("there is no warmup");
  return importer.refuse("Hearth warms up the learning rate only");
}

Result yolo_scale(Importer& importer, const Entry& entry) {
  const double gain = number_of(entry.value, 0.5);
  return importer.set("detect.scale", fmt::format("[{}, {}]", 1 - gain, 1 + gain));
}

Result yolo_flip(Importer& importer, const Entry& entry) {
  const double share = number_of(entry.value, 0.5);
  if (share == 0 || share == 0.5) return importer.set("data.flip", share == 0 ? "false" : "true");
  return importer.refuse("Hearth flips half of the images or none", "data.flip", "true");
}

Result yolo_hsv(Importer& importer, const Entry&) {
  double sum = 0;
  for (const auto& [key, otherwise] : {std::pair("hsv_h", 0.015), {"hsv_s", 0.7}, {"hsv_v", 0.4}})
    sum += importer.config.number(key, otherwise);
  if (sum == 0) return importer.set("detect.hsv", "false");
  return importer.set("detect.hsv", "true", "by YOLOX's amounts, not by hsv_h, hsv_s, hsv_v");
}

Result yolo_multi_scale(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("one size");
  return importer.refuse("Hearth needs a list of sides", "detect.sizes");
}

Result yolo_pretrained(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("random weights");
  return importer.refuse("the weights of another model do not fit", "init");
}

Result yolo_amp(Importer& importer, const Entry& entry) {
  return importer.set("precision", is_off(entry.value) ? "fp32" : "fp16", "dynamic loss scaling");
}

Result yolo_file_key(Importer& importer, const Entry& entry) {
  const bool is_path = entry.key == "data.path";
  const fs::path root = text_of(entry.value);
  if (!is_path) return equal("Hearth reads data.yaml");
  if (root == "." || root == ".." || importer.exists(root.string())) return equal("Hearth reads data.yaml");
  return importer.refuse("there is no such folder; Hearth reads data.yaml in data.path", "data.path");
}

constexpr Rule kYoloRules[] = {
    {.keys = "task", .kind = convert, .note = "detect, classify", .convert = yolo_task},
    {.keys = "mode", .kind = accept, .values = "train", .note = "only training can be imported"},
    {.keys = "model",
     .kind = convert,
     .ours = "model.name",
     .note = "YOLOX of the same size, or resnet18: another model",
     .fallback = "yolo11n.pt",
     .convert = yolo_model},
    {.keys = "data",
     .kind = convert,
     .ours = "data.path",
     .note = "the folder of data.yaml; data.kind=yolo",
     .convert = yolo_data},
    {.keys = "data.path data.train data.val data.test data.names data.nc data.names.*",
     .kind = convert,
     .note = "read from data.yaml",
     .convert = yolo_file_key},
    {.keys = "data.download data.minival data.roboflow* data.channels", .note = "Hearth does not need it"},
    {.keys = "epochs", .kind = take, .ours = "train.epochs", .fallback = "100"},
    {.keys = "patience",
     .kind = take,
     .ours = "train.early_stop",
     .note = "number of evaluations",
     .fallback = "100"},
    {.keys = "batch",
     .kind = convert,
     .ours = "train.batch",
     .note = "train.accumulate is set to nbs / batch",
     .fallback = "16",
     .convert = yolo_batch},
    {.keys = "nbs", .kind = part, .note = "see batch"},
    {.keys = "imgsz", .kind = take, .ours = "data.image_size", .fallback = "640"},
    {.keys = "workers", .kind = part, .note = "see data.threads"},
    {.keys = "seed", .kind = take, .ours = "seed", .note = "Hearth's random numbers are different"},
    {.keys = "optimizer",
     .kind = convert,
     .ours = "optimizer.name",
     .note = "SGD, AdamW; auto is refused",
     .fallback = "auto",
     .convert = yolo_optimizer},
    {.keys = "momentum", .kind = part, .note = "see optimizer"},
    {.keys = "lr0", .kind = take, .ours = "optimizer.lr", .fallback = "0.01"},
    {.keys = "lrf", .kind = part, .note = "see cos_lr"},
    {.keys = "cos_lr",
     .kind = convert,
     .ours = "schedule.name",
     .note = "only true; schedule.min_lr = lr0 x lrf",
     .fallback = "false",
     .convert = yolo_schedule},
    {.keys = "weight_decay",
     .kind = convert,
     .ours = "optimizer.weight_decay",
     .note = "weight_decay x batch x train.accumulate / nbs",
     .fallback = "0.0005",
     .convert = yolo_weight_decay},
    {.keys = "warmup_epochs",
     .kind = convert,
     .ours = "schedule.warmup_steps",
     .note = "needs the number of updates",
     .fallback = "3",
     .convert = yolo_warmup},
    {.keys = "warmup_momentum",
     .kind = convert,
     .note = "Hearth warms up the learning rate only",
     .fallback = "0.8",
     .convert = yolo_warmup_detail},
    {.keys = "warmup_bias_lr",
     .kind = convert,
     .note = "Hearth warms up the learning rate only",
     .fallback = "0.1",
     .convert = yolo_warmup_detail},
    {.keys = "(ema)",
     .kind = take,
     .ours = "train.ema",
     .note = "ultralytics always keeps a moving average",
     .fallback = "0.9999"},
    {.keys = "(clipping)",
     .kind = take,
     .ours = "train.clip_norm",
     .note = "ultralytics always clips",
     .fallback = "10"},
    {.keys = "close_mosaic", .kind = take, .ours = "detect.plain_epochs", .fallback = "10"},
    {.keys = "mosaic", .kind = take, .ours = "detect.mosaic", .fallback = "1"},
    {.keys = "mixup", .kind = take, .ours = "detect.mixup", .fallback = "0"},
    {.keys = "degrees", .kind = take, .ours = "detect.degrees", .fallback = "0"},
    {.keys = "translate", .kind = take, .ours = "detect.translate", .fallback = "0.1"},
    {.keys = "shear", .kind = take, .ours = "detect.shear", .fallback = "0"},
    {.keys = "scale",
     .kind = convert,
     .ours = "detect.scale",
     .note = "[1 - scale, 1 + scale]",
     .fallback = "0.5",
     .convert = yolo_scale},
    {.keys = "fliplr",
     .kind = convert,
     .ours = "data.flip",
     .note = "0 or 0.5",
     .fallback = "0.5",
     .convert = yolo_flip},
    {.keys = "hsv_v",
     .kind = convert,
     .ours = "detect.hsv",
     .note = "off if all values are 0, otherwise on with YOLOX's amounts",
     .fallback = "0.4",
     .convert = yolo_hsv},
    {.keys = "hsv_h hsv_s", .kind = part, .note = "see hsv_v"},
    {.keys = "multi_scale",
     .kind = convert,
     .ours = "detect.sizes",
     .note = "only off",
     .convert = yolo_multi_scale},
    {.keys = "pretrained", .kind = convert, .ours = "init", .note = "only false", .convert = yolo_pretrained},
    {.keys = "amp",
     .kind = convert,
     .ours = "precision",
     .note = "fp16 or fp32",
     .fallback = "true",
     .convert = yolo_amp},
    {.keys = "dropout", .kind = accept, .note = "Hearth has no dropout in these classifiers"},
    {.keys = "fraction", .kind = accept, .values = "1", .note = "Hearth trains on all images"},
    {.keys = "val", .kind = accept, .values = "true", .note = "Hearth always evaluates"},
    {.keys = "iou", .kind = take, .ours = "detect.nms", .note = "used in evaluations"},
    {.keys = "max_det", .kind = take, .ours = "detect.max_detections", .note = "used in evaluations"},
    {.keys = "conf", .kind = take, .ours = "detect.score", .note = "used in evaluations"},
    {.keys = "box cls dfl pose kobj rle angle cls_pw", .note = "weights of losses that YOLOX does not have"},
    {.keys = "auto_augment erasing crop_fraction",
     .kind = accept,
     .note = "only for classifiers; Hearth has data.flip and data.crop_padding"},
    {.keys = "overlap_mask mask_ratio copy_paste_mode retina_masks", .note = "only for segmentation"},
    {.keys = "boxes line_thickness v5loader save save_period cache device project name exist_ok verbose "
             "deterministic profile plots "
             "save_json save_hybrid save_dir "
             "compile split half dnn end2end source vid_stride stream_buffer visualize augment agnostic_nms "
             "embed show "
             "save_frames save_txt save_conf save_crop show_labels show_conf show_boxes line_width format "
             "keras optimize int8 dynamic "
             "simplify opset workspace nms cfg tracker",
     .note = "output, prediction and export"},
    {.keys = "resume", .kind = accept, .note = "hearth resume RUN continues a run of Hearth"},
    {.keys = "single_cls rect freeze time perspective flipud bgr cutmix copy_paste classes distill_model dis",
     .kind = accept,
     .note = "Hearth has no such feature"},
    {.keys = "data.*", .kind = accept, .note = "Hearth reads boxes only"},
};

}  // namespace

Tool ultralytics() {
  return {.name = "ultralytics",
          .title = "ultralytics YAML",
          .marks = "imgsz names lr0 mosaic",
          .tables = {kYoloRules},
          .prepare = yolo_prepare};
}

}  // namespace hearth::convert
