"""The words of the sandbox, in English and Russian, by the key of a step; values in braces are what was counted."""

from __future__ import annotations

from typing import Final

LANGUAGES: Final = ("en", "ru")

_TITLES: Final = {
    "partitions": ("Partitions and parallelism", "Партиции и параллелизм"),
    "groups": ("Consumer groups", "Группы потребителей"),
    "offsets": ("Offsets and replay", "Смещения и повторное чтение"),
    "replication": ("Replication and failure", "Репликация и отказы"),
    "delivery": ("Delivery guarantees", "Гарантии доставки"),
    "access": ("Users, rights and the audit", "Пользователи, права и аудит"),
}

WORDS: Final = {
    "partitions.intro": (
        "A topic is cut into partitions, and each partition is led by one broker: that is how three brokers share the work. "
        "We make the topic 'orders' with three partitions and three replicas of each, and send it 300 records with keys.",
        "Топик разделён на партиции, и у каждой партиции свой лидер среди брокеров: так три брокера делят работу. "
        "Создаём топик orders: три партиции, у каждой по три реплики. Отправляем в него 300 записей с ключами.",
    ),
    "partitions.spread": (
        "each broker leads one partition (partition: broker {leaders})",
        "каждый брокер стал лидером одной партиции (партиция: брокер {leaders})",
    ),
    "partitions.counted": (
        "the 300 records are spread over the partitions ({counts})",
        "300 записей распределились по партициям ({counts})",
    ),
    "partitions.keys": (
        "all records of one key are in one partition ({keys} keys looked at)",
        "все записи с одним ключом лежат в одной партиции (проверено ключей: {keys})",
    ),
    "partitions.order": (
        "records of one key come back in the order in which they were sent ({records} read)",
        "записи с одним ключом читаются в том порядке, в каком были отправлены (прочитано: {records})",
    ),
    "groups.intro": (
        "Consumers of one group divide the partitions among themselves. A partition has one reader in a group at a time, so a "
        "fourth consumer of three partitions has nothing to do, until it is needed.",
        "Потребители одной группы делят партиции между собой. Каждую партицию в группе читает только один из них, поэтому "
        "на три партиции четвёртый лишний, пока он не понадобится.",
    ),
    "groups.one": ("one consumer has all three partitions", "один потребитель читает все три партиции"),
    "groups.three": (
        "three consumers have one partition each ({shares})",
        "у трёх потребителей по одной партиции ({shares})",
    ),
    "groups.idle": (
        "the fourth consumer is idle (partitions of each: {shares})",
        "четвёртый потребитель простаивает (партиций у каждого: {shares})",
    ),
    "groups.takes_over": (
        "{gone} has left, and the idle one has taken over its partition ({shares})",
        "{gone} ушёл, и его партицию взял тот, кто простаивал ({shares})",
    ),
    "groups.once": (
        "the group has read each of {expected} records once, while members came and went (read {count}, distinct {distinct})",
        "группа прочла каждую из {expected} записей ровно один раз, кто бы ни приходил и ни уходил (прочитано {count}, "
        "разных {distinct})",
    ),
    "offsets.intro": (
        "A group writes down how far it has read: its offsets. The records stay. So a group can stop and go on later, another "
        "one can read the same records, and the past can be read again.",
        "Группа запоминает, докуда дочитала: это её смещения (offsets). Сами записи остаются на месте. Поэтому группа может "
        "остановиться и продолжить позже, другая группа может прочесть те же записи, а прошлое можно перечитать.",
    ),
    "offsets.lag": (
        "no one reads, 100 records were sent: the group lags by {lag}",
        "никто не читает, отправлено 100 записей: отставание группы {lag}",
    ),
    "offsets.goes_on": (
        "a new consumer continues where the group stopped, and reads {count} records",
        "новый потребитель продолжает с того места, где группа остановилась (прочитано: {count})",
    ),
    "offsets.second_group": (
        "another group reads all {count} records from the beginning: reading takes nothing away",
        "другая группа читает все записи с начала ({count}): чтение ничего не удаляет",
    ),
    "offsets.replay": (
        "its offsets set back to 0, the first group reads all {count} records again",
        "смещения сброшены в 0, и первая группа читает все записи заново ({count})",
    ),
    "replication.intro": (
        "Each partition is on three brokers; the replicas that keep up are 'in sync'. A record is acknowledged (acks=all) "
        "when all of those have it on disk. While records flow, we kill brokers.",
        "Каждая партиция хранится на трёх брокерах; реплики, которые не отстают от лидера, называются синхронными (ISR). "
        "Запись подтверждается (acks=all), когда она на диске у всех синхронных реплик. Пока записи идут, мы убиваем брокеры.",
    ),
    "replication.copies": (
        "partition 0 is in sync on brokers {isr}",
        "синхронные реплики партиции 0 на брокерах {isr}",
    ),
    "replication.killed": (
        "kill -9 of broker {broker}, which leads partition 0.",
        "Посылаем kill -9 брокеру {broker}, лидеру партиции 0.",
    ),
    "replication.moved": (
        "broker {broker} leads now, {milliseconds} ms later",
        "лидером стал брокер {broker}, прошло {milliseconds} мс",
    ),
    "replication.goes_on": (
        "records go on being acknowledged ({count} in two seconds)",
        "записи подтверждаются по-прежнему (за две секунды: {count})",
    ),
    "replication.revived": (
        "broker {broker} is back, has caught up, and is in sync",
        "брокер {broker} вернулся, догнал остальных и снова синхронен",
    ),
    "replication.paused": (
        "SIGSTOP to broker {broker}, the controller: it lives, but is silent.",
        "Посылаем SIGSTOP брокеру {broker}, контроллеру: он жив, но молчит.",
    ),
    "replication.controller": (
        "its session ran out: broker {broker} is the controller now",
        "его сессия истекла, и контроллером стал брокер {broker}",
    ),
    "replication.nothing_lost": (
        "of {acknowledged} acknowledged records {lost} are lost and {doubled} doubled",
        "из {acknowledged} подтверждённых записей потеряно {lost}, продублировано {doubled}",
    ),
    "delivery.intro": (
        "What is promised is a choice. With min.insync.replicas=2 the cluster would rather refuse a record than keep it on one "
        "broker alone: we kill two. Then: at least once, and exactly once.",
        "Какие нужны гарантии, выбираете вы. При min.insync.replicas=2 кластер скорее откажется принять запись, чем оставит "
        "её на одном брокере: убиваем два. Затем: «хотя бы один раз» и «ровно один раз».",
    ),
    "delivery.refused": (
        "with one replica left, a producer with acks=all is refused: {error}",
        "осталась одна реплика, и производителю с acks=all отказано: {error}",
    ),
    "delivery.revived": (
        "Both brokers are back; records are taken again.",
        "Оба брокера вернулись; записи снова принимаются.",
    ),
    "delivery.at_least_once": (
        "at least once: a consumer died before it committed, so its successor read {twice} records again, and lost none",
        "хотя бы один раз: потребитель умер, не успев сохранить смещения; его преемник прочёл повторно записей: {twice}, "
        "и не потерял ни одной",
    ),
    "delivery.exactly_once": (
        "exactly once: of three transactions over three partitions the aborted one is not seen, the others are whole ({read})",
        "ровно один раз: из трёх транзакций по трём партициям отменённая не видна, остальные видны целиком ({read})",
    ),
    "access.intro": (
        "The brokers speak TLS only, and ask who is there. The user 'visitor' may write to 'orders' and read it, "
        "may see that 'payroll' is there, and nothing else.",
        "Брокеры говорят только по TLS и спрашивают, кто пришёл. Пользователь visitor может писать в orders и читать его, "
        "может узнать, что есть payroll, и больше ничего.",
    ),
    "access.allowed": (
        "the visitor's record is taken by {topic!r}",
        "запись пользователя visitor принята в {topic}",
    ),
    "access.refused": (
        "the visitor's record is refused by 'payroll': {error}",
        "запись пользователя visitor в payroll отклонена: {error}",
    ),
    "access.stranger": (
        "with a wrong password no one gets in: {error}",
        "с неверным паролем не войти: {error}",
    ),
    "access.audited": (
        "the audit has the refusal: {principal}, {api}, {resources}",
        "отказ записан в аудите: {principal}, {api}, {resources}",
    ),
    "access.granted": (
        "one more rule (write on {topic!r}), and the same record is taken, without any restart",
        "ещё одно правило (запись в {topic}), и та же запись принята, без перезапуска",
    ),
    "ui.secured": (
        "try it in another terminal, as the visitor and as the admin:\n"
        "  export ODRADEK_CLIENT_CONFIG={visitor}\n"
        "  echo mine | odradek produce payroll\n"
        "  ODRADEK_CLIENT_CONFIG={admin} odradek audit tail",
        "попробуйте в другом терминале, как visitor и как admin:\n"
        "  export ODRADEK_CLIENT_CONFIG={visitor}\n"
        "  echo mine | odradek produce payroll\n"
        "  ODRADEK_CLIENT_CONFIG={admin} odradek audit tail",
    ),
    "ui.next": (
        "[Enter] next lesson, or a command (help):",
        "[Enter] следующий урок или команда (help):",
    ),
    "ui.end": (
        "That was the story. Play on, or quit.",
        "История рассказана. Можно играть дальше или выйти: quit.",
    ),
    "ui.welcome": (
        "Lessons to come: {lessons}. Enter begins the first one. At any prompt you can play as well: 'kill 2' and 'revive 2', "
        "'load', 'consumer add', 'watch'; 'help' lists all commands, and 'quit' ends everything.",
        "Впереди уроки: {lessons}. Enter начинает первый. В любой момент можно и поиграть: kill 2 и revive 2, "
        "load, consumer add, watch; help покажет все команды, quit завершит всё.",
    ),
    "ui.starting": ("starting {count} brokers …", "запускаем брокеры: {count} …"),
    "ui.ready": (
        "{count} brokers run; clients may use {address}",
        "брокеров запущено: {count}; адрес для клиентов {address}",
    ),
    "ui.console": (
        "in the browser, from another terminal: odradek console --bootstrap {address}",
        "в браузере, из другого терминала: odradek console --bootstrap {address}",
    ),
    "ui.verdict": ("{held} of {all} claims hold", "подтвердилось утверждений: {held} из {all}"),
}


def title(lesson: str, language: str) -> str:
    return _TITLES[lesson][LANGUAGES.index(language)]


def words(key: str, language: str, **values: object) -> str:
    """Returns a step's sentence, with what was counted in it."""
    written = {name: _written(value) for name, value in values.items()}
    return WORDS[key][LANGUAGES.index(language)].format(**written)


def _written(value: object) -> object:
    """Returns a value as a person writes it: "0: 2, 1: 3" for a mapping, "1, 1, 1" for a list."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_written(part)}" for key, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(_written(part)) for part in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value
